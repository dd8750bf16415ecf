// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks getifaddrs and getaddrinfo.
#include "distributed/network_interfaces.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <tuple>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::distributed {
namespace {

// The address in figures, without a scope: `fe80::1`, never `fe80::1%eth0`. Empty for what is no address of IP.
std::string text_of(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return {};
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  std::string all = text.data();
  return all.substr(0, all.find('%'));
}

bool is_loopback_address(std::string_view address) {
  return address == "::1" || address.starts_with("127.");
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> addresses;
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return addresses;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::string text = text_of(one->ai_addr);
    if (!text.empty()) addresses.push_back(std::move(text));
  }
  return addresses;
}

std::string list_of_interfaces() {
  std::string text;
  for (const InterfaceAddress& one : interface_addresses()) {
    text += formatted("{}{} ({})", text.empty() ? "" : ", ", one.name, one.address);
  }
  return text.empty() ? "none" : text;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    throw ConfigError(formatted("the network interfaces can't be listed: {}", base::errno_text(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(found, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    std::string address = text_of(one->ifa_addr);
    if (address.empty() || (one->ifa_flags & IFF_UP) == 0) continue;
    all.push_back({one->ifa_name, std::move(address), (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  std::sort(all.begin(), all.end(), [](const InterfaceAddress& a, const InterfaceAddress& b) {
    return std::tie(a.name, a.address) < std::tie(b.name, b.address);
  });
  return all;
}

std::vector<std::string> interface_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return names;
}

void check_interfaces(std::string_view list) {
  const std::vector<std::string> names = interface_names(list);
  if (names.empty()) return;
  const std::vector<InterfaceAddress> all = interface_addresses();
  for (const std::string& name : names) {
    if (std::none_of(all.begin(), all.end(), [&](const InterfaceAddress& one) { return one.name == name; })) {
      throw ConfigError(
          formatted("World: there is no network interface '{}' (option interface, or "
                    "GLOO_SOCKET_IFNAME='{}'); this machine has: {}.",
                    name, list, list_of_interfaces()));
    }
  }
}

bool binds_to_loopback(std::string_view list) {
  const std::vector<std::string> names = interface_names(list);
  if (names.empty()) {
    // Without an interface gloo takes the first address that this machine's name stands for, and loopback if none.
    const std::vector<std::string> addresses = addresses_of(host_name());
    return addresses.empty() || is_loopback_address(addresses.front());
  }
  const std::vector<InterfaceAddress> all = interface_addresses();
  return std::any_of(all.begin(), all.end(), [&](const InterfaceAddress& one) {
    return one.is_loopback && std::find(names.begin(), names.end(), one.name) != names.end();
  });
}

bool is_this_machine(const std::string& host) {
  const std::vector<InterfaceAddress> all = interface_addresses();
  for (const std::string& address : addresses_of(host)) {
    if (is_loopback_address(address)) return true;
    for (const InterfaceAddress& one : all) {
      if (one.address == address) return true;
    }
  }
  return false;
}

void check_interface_reaches(std::string_view list, const std::string& store_host) {
  if (is_this_machine(store_host) || !binds_to_loopback(list)) return;
  const std::string why = interface_names(list).empty()
                              ? formatted("this machine's name, '{}', stands for a loopback address", host_name())
                              : formatted("the interface is '{}'", list);
  throw ConfigError(
      formatted("World: gloo would bind to loopback ({}) while the store is on another machine ({}): no "
                "other machine could connect. Set the option interface, or GLOO_SOCKET_IFNAME, to one of: "
                "{}.",
                why, store_host, list_of_interfaces()));
}

}  // namespace dbg::distributed
