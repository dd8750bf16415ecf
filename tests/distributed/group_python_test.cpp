// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The keys under which Python's groups meet, against torch's own PrefixStore as Python nests it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/groups.h"
#include "distributed/messages.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using c10d::PrefixStore;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// As torch.distributed nests them; the innermost last.
c10::intrusive_ptr<c10d::Store> nested(c10::intrusive_ptr<c10d::Store> store,
                                       const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) store = c10::make_intrusive<PrefixStore>(prefix, store);
  return store;
}

void expect_meets(const PythonGroup& group, const std::vector<std::string>& prefixes) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  test::run_ranks_as_threads(2, [&](int rank) {
    if (rank == 0) {
      const auto backend = test::somebodys_gloo(0, 2, nested(store, prefixes));
      test::expect_works(*backend);
    } else {
      WorldOptions options;
      options.interface = "lo";
      const auto joined =
          GroupCoordinator::join_python(World::create(store, 1, 2, options), group, test::gloo_pair("both"));
      test::expect_works(*joined->cpu_group()->getBackend(c10::DeviceType::CPU));
      EXPECT_EQ(joined->cpu_group()->getGroupDesc(), "both:cpu");
      EXPECT_EQ(joined->cpu_group(), joined->device_group());
    }
  });
}

TEST(GroupPythonTest, MeetsTheWorldsGroup) {
  expect_meets({}, {"default_pg", "0/", "cpu/"});
}

TEST(GroupPythonTest, MeetsASubgroup) {
  expect_meets({PythonGroup::Kind::subgroup, "3", {0, 1}}, {"default_pg", "0/", "3/", "cpu/"});
}

TEST(GroupPythonTest, MeetsACustomGroup) {
  expect_meets({PythonGroup::Kind::custom, "graft", {}}, {"graft", "graft/", "cpu/"});
}

TEST(GroupPythonTest, WhoIsNotListedGetsNothing) {
  const World world = World::for_threads(3).back();
  EXPECT_EQ(GroupCoordinator::join_python(world, {PythonGroup::Kind::subgroup, "1", {0, 1}}), nullptr);
}

TEST(GroupPythonTest, WhatMakesNoSenseIsRefused) {
  const World world = World::for_threads(1).front();
  EXPECT_THROW(GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, "", {}}), ConfigError);
  const auto complaint = [&](const PythonGroup& group, const GroupOptions& options) {
    return test::message_of<ConfigError>([&] { GroupCoordinator::join_python(world, group, options); });
  };
  GroupOptions options = test::gloo_pair("g");
  options.device_backend = "nccl";
  EXPECT_THAT(complaint({}, options), HasSubstr("the device backend is 'nccl'"));
  options = test::gloo_pair("g");
  options.cpu_backend = "vendor";
  EXPECT_THAT(complaint({}, options), HasSubstr("the cpu backend is 'vendor'"));
  options = test::gloo_pair("g");
  options.device_options = c10d::ProcessGroupGloo::Options::create();
  EXPECT_THAT(complaint({}, options), HasSubstr("device_options are given"));
  using Kind = PythonGroup::Kind;
  EXPECT_THAT(complaint({Kind::subgroup, "1", {0, 1}}, test::gloo_pair("g")), HasSubstr("rank 1 in [0, 1] is not one"));
  EXPECT_THAT(complaint({Kind::subgroup, "1", {0, 0}}, test::gloo_pair("g")), HasSubstr("rank 0 is listed twice"));
}

TEST(GroupPythonTest, ASilentPeerIsSaidWithinTheTimeout) {
  GroupOptions options = test::gloo_pair("both");
  options.timeout = milliseconds(700);
  const World world = World::for_threads(2).front();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(test::message_of<CommError>([&] { GroupCoordinator::join_python(world, {}, options); }),
              AllOf(HasSubstr("both:cpu"), HasSubstr("join_python on rank 0"), HasSubstr("peer_missing, peer 1"),
                    HasSubstr("default_pg/0//cpu/")));
  EXPECT_LT(std::chrono::steady_clock::now() - began, options.timeout + milliseconds(1000));
  EXPECT_EQ(world.store()->getNumKeys(), 0);
}

// The store of one that ends once its own address is in it.
class WriteOnlyStore final : public PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  std::vector<std::uint8_t> get(const std::string&) override { end(); }
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>&) override { end(); }
  void wait(const std::vector<std::string>&) override { end(); }
  void wait(const std::vector<std::string>&, const milliseconds&) override { end(); }

 private:
  [[noreturn]] static void end() { throw Error("this one ends here"); }
};

// Gloo has what it was to wait for, and goes on waiting: for the other to connect, five times as long as it was told.
TEST(GroupPythonTest, APeerThatLeavesItsAddressAndNeverConnectsIsSaidWithinTheTimeout) {
  GroupOptions options = test::gloo_pair("both");
  options.timeout = milliseconds(700);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto gone = c10d::ProcessGroupGloo::Options::create(milliseconds(5000));
  // Above the other's: it is the one of the lower address that waits for the other.
  gone->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.2"));
  const auto only_written = c10::make_intrusive<WriteOnlyStore>("graft/graft//cpu/", store);
  EXPECT_ANY_THROW(c10::make_intrusive<c10d::ProcessGroupGloo>(only_written, 1, 2, gone));
  WorldOptions lo;
  lo.interface = "lo";
  const World world = World::create(store, 0, 2, lo);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(test::message_of<CommError>([&] {
                GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, "graft", {}}, options);
              }),
              AllOf(HasSubstr("join_python on rank 0"), HasSubstr("peer_missing"),
                    HasSubstr("gloo has not connected all 2 members within 700 ms")));
  EXPECT_LT(std::chrono::steady_clock::now() - began, options.timeout + milliseconds(1000));
}

}  // namespace
}  // namespace dbg
