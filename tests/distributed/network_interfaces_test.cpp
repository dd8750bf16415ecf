// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The machine's interfaces, and which of them lead elsewhere.
#include "distributed/network_interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dbg/error.h"

namespace dbg::distributed {
namespace {

TEST(NetworkInterfacesTest, InterfaceNamesAreSplitAndTrimmed) {
  EXPECT_EQ(interface_names(" eth0 ,eth1,, "), (std::vector<std::string>{"eth0", "eth1"}));
  EXPECT_TRUE(interface_names("").empty());
}

TEST(NetworkInterfacesTest, LoopbackIsThere) {
  const std::vector<InterfaceAddress> all = interface_addresses();
  EXPECT_THAT(all, testing::Contains(testing::AllOf(testing::Field(&InterfaceAddress::address, "127.0.0.1"),
                                                    testing::Field(&InterfaceAddress::is_loopback, true))));
}

TEST(NetworkInterfacesTest, OwnAddressesAreThisMachine) {
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  for (const InterfaceAddress& one : interface_addresses()) EXPECT_TRUE(is_this_machine(one.address)) << one.address;
  EXPECT_FALSE(is_this_machine("203.0.113.1"));
  EXPECT_FALSE(is_this_machine("no-such-host.invalid"));
}

TEST(NetworkInterfacesTest, OnlyLoopbackBindsToLoopback) {
  for (const InterfaceAddress& one : interface_addresses()) EXPECT_EQ(binds_to_loopback(one.name), one.is_loopback);
  EXPECT_THROW(check_interface_reaches("lo", "203.0.113.1"), ConfigError);
  EXPECT_NO_THROW(check_interface_reaches("lo", "127.0.0.1"));
}

}  // namespace
}  // namespace dbg::distributed
