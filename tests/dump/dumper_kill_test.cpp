// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A run that is killed at any moment while it dumps: what is left reads whole, and the next start takes the rest away.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "dbg/dumper.h"
#include "support/forked_child.h"
#include "support/record_files.h"
#include "support/temp_folder.h"
#include "support/torch_archive.h"

namespace dbg {
namespace {

using testing::EndsWith;
using testing::StartsWith;

constexpr int kDeaths = 50;

// Small ones, where a kill hits between system calls, and large ones, where it hits within a write.
std::vector<at::Tensor> make_values() {
  std::vector<at::Tensor> values;
  for (int i = 0; i < 8; ++i) values.push_back(at::full({i % 2 == 0 ? 3 : 400000}, i, at::kFloat));
  return values;
}

void dump_all(Dumper& dumper, const std::vector<at::Tensor>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) dumper.dump("x", values[i], {{"i", static_cast<int>(i)}});
}

// Lets the kernel kill this process, without notice, that long from now.
void die_in(std::int64_t nanoseconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) ::_exit(3);
  itimerspec when{};
  when.it_value.tv_sec = nanoseconds / 1000000000;
  when.it_value.tv_nsec = nanoseconds % 1000000000 + 1;
  if (::timer_settime(timer, 0, &when, nullptr) != 0) ::_exit(4);
}

TEST(DumperKillTest, WhatIsLeftReadsWholeAndTheNextStartTakesTheRestAway) {
  at::set_num_threads(1);  // the children are forked: they have no threads of the parent's
  const std::vector<at::Tensor> values = make_values();
  const test::TempFolder folder;
  DumperConfig config = test::quiet_config(folder.path());
  config.exp_name = "run";
  const auto run = folder / "run";

  const auto started = std::chrono::steady_clock::now();
  {
    Dumper whole(config);
    dump_all(whole, values);
    ASSERT_EQ(whole.state().counters.written, values.size());
  }
  const std::int64_t pass_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - started).count();
  std::filesystem::remove_all(run);

  std::mt19937_64 random(20260801);
  int deaths_with_leftovers = 0;
  std::size_t records = 0;
  for (int death = 0; death < kDeaths; ++death) {
    const auto offset_ns = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(pass_ns));
    SCOPED_TRACE(testing::Message() << "death " << death << " after " << offset_ns << " ns");
    const test::ForkedChild child = test::run_forked([&] {
      Dumper dumper(config);
      die_in(offset_ns);
      for (;;) dump_all(dumper, values);
      return 1;
    });
    ASSERT_EQ(child.signal, SIGKILL) << child.output;

    std::size_t leftovers = 0;
    for (const std::string& name : test::names_in(run)) {
      if (!name.ends_with(".pt")) {
        EXPECT_THAT(name, StartsWith(".dbgtmp-"));
        ++leftovers;
        continue;
      }
      ++records;
      const auto path = run / name;
      const at::Tensor& value = values.at(std::stoul(test::tag_of(path, "i")));
      EXPECT_TRUE(test::first_tensor_bytes(path.string()) == test::tensor_bytes(value)) << name;
      EXPECT_TRUE(at::equal(read_record(path.string()).value.toTensor(), value)) << name;
    }
    EXPECT_LE(leftovers, 1u);
    deaths_with_leftovers += static_cast<int>(leftovers);

    Dumper next(config);
    next.dump("next", values[0]);
    for (const std::string& name : test::names_in(run)) EXPECT_THAT(name, EndsWith(".pt"));
    std::filesystem::remove_all(run);
  }
  EXPECT_GT(deaths_with_leftovers, kDeaths / 10) << "the deaths hit no write: this test shows nothing";
  EXPECT_GT(records, 0u);
}

}  // namespace
}  // namespace dbg
