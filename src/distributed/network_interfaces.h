// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The machine's network interfaces: whether those asked for are there, and whether they lead to another machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dbg::distributed {

/// An address of an interface that is up.
struct InterfaceAddress {
  std::string name;     ///< `eth0`
  std::string address;  ///< `10.0.0.1`, `fe80::1`
  bool is_loopback = false;
};

/// Sorted by name, then address. Throws: ConfigError when the system does not say.
std::vector<InterfaceAddress> interface_addresses();

/// The names in `eth0,eth1`, without blanks. Empty for an empty text.
std::vector<std::string> interface_names(std::string_view list);

/// Throws: ConfigError, listing what there is, when one of the interfaces in `list` is not there.
void check_interfaces(std::string_view list);

/// Whether gloo would bind to loopback: by the interfaces in `list`, or without any by this machine's name.
bool binds_to_loopback(std::string_view list);

/// Throws: ConfigError, listing what there is, when gloo would bind to loopback while `store_host` is another machine.
void check_interface_reaches(std::string_view list, const std::string& store_host);

/// Whether one of the host's addresses is this machine's. A host that cannot be resolved counts as another machine's.
bool is_this_machine(const std::string& host);

}  // namespace dbg::distributed
