// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Backends of each kind behind a group: a vendor's by its factory, checked ones, and what is refused.
#include "distributed/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "dbg/backend_factory.h"
#include "dbg/error.h"
#include "distributed/groups.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using c10d::ProcessGroupGloo;
using std::chrono::milliseconds;
using testing::HasSubstr;

// A backend that dbg does not know: a vendor's.
class VendorBackend : public c10d::Backend {
 public:
  VendorBackend(int rank, int size) : Backend(rank, size) {}
  const std::string getBackendName() const override { return "vendor"; }
};

// The threads of this process, and whether SIGPIPE is blocked in each.
std::map<std::string, bool> sigpipe_by_thread() {
  std::map<std::string, bool> blocked;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      blocked[task.path().filename()] = (std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1U) != 0;
    }
  }
  return blocked;
}

// They write to peers that may be gone, where the signal would end the process.
TEST(BackendsTest, GloosThreadsGetNoSigpipe) {
  const std::map<std::string, bool> before = sigpipe_by_thread();
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, test::gloo_pair("tp"));
  int fresh = 0;
  for (const auto& [thread, is_blocked] : sigpipe_by_thread()) {
    if (before.count(thread) != 0) continue;
    EXPECT_TRUE(is_blocked) << thread;
    ++fresh;
  }
  EXPECT_GE(fresh, 4) << "two halves, each with a thread for its connections and some for its operations";
  sigset_t own;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &own), 0);
  EXPECT_EQ(::sigismember(&own, SIGPIPE), 0) << "the program's own threads keep what they had";
}

TEST(BackendFactoryTest, AThirdBackendCarriesBothLabels) {
  std::vector<BackendRequest> requests;
  const auto registration = register_backend("vendor", [&](const BackendRequest& request) {
    requests.push_back(request);
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<VendorBackend>(request.rank, request.size));
  });
  GroupOptions options = test::gloo_pair("tp");
  options.device_backend = "vendor";
  options.cpu_backend = "vendor";
  options.device_options = ProcessGroupGloo::Options::create(milliseconds(77));
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
  EXPECT_EQ(group->device_group()->getBackend(c10::DeviceType::CPU)->getGroupDesc(), "tp:device");
  EXPECT_EQ(group->cpu_group()->getBackend(c10::DeviceType::CPU)->getGroupDesc(), "tp:cpu");
  EXPECT_EQ(group->device_backend(), "vendor");
  ASSERT_EQ(requests.size(), 2U);
  const BackendRequest& device = requests[0].half == "device" ? requests[0] : requests[1];
  EXPECT_EQ(device.group_name, "tp:device@0.g0");
  EXPECT_EQ(device.group_desc, "tp:device");
  EXPECT_EQ(device.options.get(), options.device_options.get());
  EXPECT_THAT(device.global_ranks, testing::ElementsAre(0));
}

TEST(BackendFactoryTest, ARegistrationEndsOnceAndGroupsLiveOn) {
  auto registration = register_backend("vendor", [](const BackendRequest& request) {
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<VendorBackend>(request.rank, request.size));
  });
  EXPECT_THROW(register_backend("vendor", [](const BackendRequest&) { return c10::intrusive_ptr<c10d::Backend>(); }),
               ConfigError);
  GroupOptions options = test::gloo_pair("tp");
  options.device_backend = "vendor";
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
  registration.remove();
  registration.remove();
  EXPECT_THROW(GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options), ConfigError);
  EXPECT_EQ(group->device_group()->getGroupDesc(), "tp:device");
}

TEST(BackendFactoryTest, ABackendOfAnotherPlaceIsRefused) {
  const auto registration = register_backend("vendor", [](const BackendRequest&) {
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<VendorBackend>(3, 4));
  });
  GroupOptions options = test::gloo_pair("tp");
  options.device_backend = "vendor";
  try {
    GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("made rank 3 of 4, where 0 of 1 was asked for"));
  }
}

}  // namespace
}  // namespace dbg
