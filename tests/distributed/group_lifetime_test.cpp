// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What groups leave behind: nothing that grows, nothing that hangs, nothing of what was adopted.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "dbg/backend_factory.h"
#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "support/forked_child.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using c10d::ProcessGroupGloo;
using std::chrono::milliseconds;
using testing::HasSubstr;

GroupOptions named(const std::string& name) {
  GroupOptions options;
  options.group_name = name;
  options.device_backend = "gloo";
  options.timeout = milliseconds(20000);
  return options;
}

std::ptrdiff_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

struct Footprint {
  std::int64_t keys;
  std::ptrdiff_t threads;
  std::ptrdiff_t files;
  bool operator==(const Footprint&) const = default;
};

DBG_RANK_BODY(makes_groups_again_and_again) {
  const std::vector<World> worlds = World::for_threads(2);
  const auto cycle = [&] {
    test::run_ranks_as_threads(2, [&](int rank) {
      const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, named("tp"));
      at::Tensor ones = at::ones({2});
      group->all_reduce(ones);
      EXPECT_EQ(ones[0].item<float>(), 2.0F);
      group->close();
    });
  };
  const auto footprint = [&] {
    return Footprint{worlds[0].store()->getNumKeys(), entries_of("/proc/self/task"), entries_of("/proc/self/fd")};
  };
  cycle();
  cycle();
  const Footprint before = footprint();
  for (int i = 0; i < 100; ++i) cycle();
  const Footprint after = footprint();
  EXPECT_EQ(after.keys, before.keys);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.files, before.files);
}

TEST(GroupLifetimeTest, AHundredCyclesLeaveKeysThreadsAndFilesFlat) {
  test::expect_all_passed(test::spawn_ranks({.body = "makes_groups_again_and_again"}));
}

DBG_RANK_BODY(four_threads_four_groups) {
  const World world = World::for_threads(1).front();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&world, i] {
      const auto group = GroupCoordinator::create(world, {{0}}, named(fmt::format("g{}", i)));
      at::Tensor ones = at::ones({2});
      group->all_reduce(ones);
      EXPECT_EQ(ones[0].item<float>(), 1.0F);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GroupLifetimeTest, FourThreadsMakeFourGroupsInFreshProcesses) {
  const char* rounds = std::getenv("DBG_TEST_FRESH_PROCESSES");
  const int processes = rounds != nullptr ? std::stoi(rounds) : 12;
  for (int done = 0; done < processes; done += 4) {
    test::expect_all_passed(test::spawn_ranks({.body = "four_threads_four_groups", .world_size = 4}));
    if (HasFailure()) break;
  }
}

TEST(GroupLifetimeTest, ClosingTwiceAndUsingAfterwardsIsHarmless) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, named("tp"));
  group->close();
  group->close();
  EXPECT_THROW(group->barrier(), LogicError);
  EXPECT_THROW(group->all_reduce(at::ones({1})), LogicError);
  EXPECT_TRUE(group->label_report().channels.empty());
}

TEST(GroupLifetimeTest, ADestructorWaitsForNobodyLong) {
  const std::vector<World> worlds = World::for_threads(2);
  test::run_ranks_as_threads(2, [&](int rank) {
    auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, named("tp"));
    static std::atomic<bool> is_gone{false};
    if (rank == 0) {
      const auto began = std::chrono::steady_clock::now();
      group.reset();
      EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(3000));
      is_gone = true;
      is_gone.notify_all();
    } else {
      is_gone.wait(false);
    }
  });
}

TEST(GroupLifetimeTest, AForkedChildNeitherHangsNorWorks) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, named("tp"));
  const auto child = test::run_forked(
      [&] {
        try {
          group->barrier();
          return 1;
        } catch (const CommError& error) {
          if (error.kind() != CommErrorKind::forked) return 2;
        }
        group->close();
        return 0;
      },
      milliseconds(10000));
  EXPECT_FALSE(child.hung);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  group->barrier();
}

// A backend that dbg does not know: a vendor's.
class VendorBackend : public c10d::Backend {
 public:
  VendorBackend(int rank, int size) : Backend(rank, size) {}
  const std::string getBackendName() const override { return "vendor"; }
};

TEST(BackendFactoryTest, AThirdBackendCarriesBothLabels) {
  std::vector<BackendRequest> requests;
  const auto registration = register_backend("vendor", [&](const BackendRequest& request) {
    requests.push_back(request);
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<VendorBackend>(request.rank, request.size));
  });
  GroupOptions options = named("tp");
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
  GroupOptions options = named("tp");
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
  GroupOptions options = named("tp");
  options.device_backend = "vendor";
  try {
    GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("made rank 3 of 4, where 0 of 1 was asked for"));
  }
}

c10::intrusive_ptr<ProcessGroupGloo> somebodys_gloo(int rank, int size, const c10::intrusive_ptr<c10d::Store>& store) {
  const auto options = ProcessGroupGloo::Options::create(milliseconds(20000));
  options->devices.push_back(ProcessGroupGloo::createDeviceForInterface("lo"));
  return c10::make_intrusive<ProcessGroupGloo>(store, rank, size, options);
}

void expect_works(c10d::Backend& backend) {
  std::vector<at::Tensor> tensors{at::ones({2})};
  backend.allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0][0].item<float>(), static_cast<float>(backend.getSize()));
}

TEST(AdoptTest, ABareBackendIsLabelledAndSurvivesUs) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto backend = somebodys_gloo(rank, 2, store);
    AdoptOptions options;
    options.group_name = "tp";
    options.ranks = {4, 6};
    {
      const auto group = GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options);
      EXPECT_EQ(backend->getGroupDesc(), "tp:device");
      EXPECT_EQ(group->rank(), rank == 0 ? 4 : 6);
      at::Tensor ones = at::ones({3});
      group->all_reduce(ones);
      EXPECT_EQ(ones[0].item<float>(), 2.0F);
      EXPECT_THAT(group->describe(), HasSubstr("gloo (adopted)"));
    }
    expect_works(*backend);
  });
}

TEST(AdoptTest, AMissingCpuHalfIsMadeFromTheWorld) {
  const std::vector<World> worlds = World::for_threads(2);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto backend = somebodys_gloo(rank, 2, store);
    AdoptOptions options;
    options.group_name = "tp";
    options.timeout = milliseconds(20000);
    const auto group = GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options,
                                               &worlds[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(group->cpu_group()->getGroupDesc(), "tp:cpu");
    EXPECT_NE(group->cpu_group(), group->device_group());
    group->barrier();
  });
}

TEST(AdoptTest, AGroupOfTheRegistryIsFoundByItsName) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto backend = somebodys_gloo(0, 1, store);
  auto theirs = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  theirs->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  theirs->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  theirs->setGroupName("7");
  theirs->setGroupDesc("undefined");
  c10d::register_process_group("7", theirs);
  const test::LogCapture log;
  AdoptOptions options;
  options.group_name = "my group";
  {
    const auto group = GroupCoordinator::adopt_registered("7", options);
    EXPECT_EQ(theirs->getGroupDesc(), "my_group:device");
    EXPECT_EQ(theirs->getGroupName(), "7");
    EXPECT_EQ(group->cpu_group(), theirs);
    EXPECT_EQ(log.count("it is labelled 'my_group'"), 1U);
  }
  EXPECT_EQ(c10d::resolve_process_group("7"), theirs);
  expect_works(*backend);
  c10d::unregister_process_group("7");
  EXPECT_THROW(GroupCoordinator::adopt_registered("7", options), ConfigError);
}

TEST(AdoptTest, WhatDoesNotFitIsRefused) {
  AdoptOptions options;
  options.ranks = {0, 1, 2};
  const auto backend = somebodys_gloo(0, 1, c10::make_intrusive<c10d::HashStore>());
  EXPECT_THROW(GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options), ConfigError);
  EXPECT_THROW(GroupCoordinator::adopt(c10::intrusive_ptr<c10d::ProcessGroup>(), {}, options), ConfigError);
}

}  // namespace
}  // namespace dbg
