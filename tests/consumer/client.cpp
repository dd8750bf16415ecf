// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a user's program does with dbg; compiled by every consumer project, as C++17 and C++20.
#ifdef C10_USE_GLOG
#include <glog/logging.h>
#endif

#include <ATen/ATen.h>

#include <cstdio>
#include <memory>

#include "dbg/compare.h"
#include "dbg/dumper.h"
#include "dbg/error.h"
#include "dbg/participant.h"
#include "dbg/runtime.h"
#include "dbg/safetensors.h"
#include "dbg/tags.h"
#include "dbg/tensor_info.h"
#include "dbg/version.h"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (!holds) {
    std::printf("does not hold: %s\n", what);
    ++failures;
  }
}

}  // namespace

int main() {
#ifdef C10_USE_GLOG
  LOG(INFO) << "the client logs by glog";
  CHECK(failures == 0) << "and its checks are glog's";
#endif
  expect(dbg::version() == std::string("0.1.0"), "the version");

  const dbg::Tags tags{{"layer_id", 3}, {"phase", "prefill"}};
  expect(tags.size() == 2, "tags from a list");

  const at::Tensor ones = at::ones({2, 3});
  expect(dbg::describe(ones).elements == 6, "a tensor described");
  expect(dbg::diff(ones, ones).same_bits, "a tensor is itself");

  bool thrown = false;
  try {
    dbg::SafetensorsFile::open("no such file");
  } catch (const dbg::IoError& error) {
    thrown = error.what() != nullptr;
  }
  expect(thrown, "an error of the library is caught by its type");

  thrown = false;
  try {
    dbg::CompareOptions options;
    options.baseline = options.target = "no such folder";
    const dbg::CompareReport report = dbg::compare_folders(options);
    expect(report.exit_code() == 2, "never reached");
  } catch (const dbg::IoError&) {
    thrown = true;
  }
  expect(thrown, "a folder that is not there can't be compared");

  const auto rank = std::make_shared<dbg::Participant>(1, 2);
  const dbg::ParticipantScope scope(rank);
  expect(dbg::current_participant()->rank() == 1, "the thread is bound");

  dbg::DumperConfig config;
  config.enable = true;
  dbg::Dumper dumper(config);
  const dbg::CaptureScope capture = dumper.capture_output();
  dumper.dump("ones", ones, {{"layer_id", 3}});
  dumper.dump("lazy", [] { return at::zeros({4}); });
  expect(capture.records().count("ones") == 1 && capture.records().count("lazy") == 1, "dumps are captured");
  dbg::dump("off", ones);
  dbg::step();
  expect(dumper.state().counters.failed == 0, "nothing failed");
  if (failures == 0) std::printf("client: all holds\n");
  return failures == 0 ? 0 : 1;
}
