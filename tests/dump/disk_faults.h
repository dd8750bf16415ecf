// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A run whose records meet faults of the disk: its results stay bit for bit, and every record is accounted for.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "dbg/dump_record.h"
#include "dbg/dumper.h"
#include "support/log_capture.h"
#include "support/record_files.h"
#include "support/temp_folder.h"
#include "support/torch_archive.h"

namespace dbg::test {

inline constexpr int kSteps = 24;

/// A run that could be anybody's: each step's result depends on all before. With a Dumper it dumps three values a step.
template <class AtStep>
at::Tensor run_model(Dumper* dumper, AtStep&& at_step) {
  at::Tensor x = at::arange(20000, at::kFloat) / 20000;
  for (int step = 0; step < kSteps; ++step) {
    at_step(step);
    const at::Tensor hidden = at::tanh(x * 1.7 - 0.3);
    const at::Tensor scale = hidden.abs().mean();
    x = x * 0.5 + hidden * scale;
    if (dumper == nullptr) continue;
    dumper->dump("hidden", hidden, {{"layer_id", step}});
    dumper->dump("scale", scale);
    dumper->dump("x", [&] { return x; });
    dumper->step();
  }
  return x;
}

inline at::Tensor run_model() {
  return run_model(nullptr, [](int) {});
}

/// A dumping run over what `disk` in its folder is, and what must hold of it whatever happened there.
class DiskFaultsFixture : public testing::Test {
 protected:
  DumperConfig config() const {
    DumperConfig config = quiet_config(folder_ / "disk");
    config.exp_name = "run";
    return config;
  }
  std::filesystem::path run() const { return folder_ / "disk/run"; }

  /// Each of the run's calls is one record or one fault, what is there reads whole, and nothing else is there.
  void expect_all_explained(Dumper& dumper, std::uint64_t lost_with_their_folder = 0) const {
    const DumperCounters counters = dumper.state().counters;
    EXPECT_EQ(counters.written + counters.failed, std::uint64_t{3 * kSteps});
    EXPECT_EQ(counters.filtered + counters.skipped + counters.dropped, 0u);
    const auto records = list_records(run().string());
    EXPECT_EQ(records.size() + lost_with_their_folder, counters.written);
    for (const std::string& record : records) {
      const std::size_t bytes = tag_of(record, "name") == "scale" ? 4 : 80000;
      EXPECT_EQ(first_tensor_bytes(record).size(), bytes) << record;
    }
    EXPECT_EQ(names_in(run()).size(), records.size()) << "something half-written stayed";
  }

  TempFolder folder_;
  LogCapture log_;
};

}  // namespace dbg::test
