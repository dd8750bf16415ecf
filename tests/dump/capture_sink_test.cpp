// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about capture_output(): records in memory instead of files.
#include "dump/capture_sink.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using test::meta_of;
using testing::IsEmpty;

class CaptureTest : public test::DumperFixture {};

TEST_F(CaptureTest, KeepsEveryRecordOfANameInOrder) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  for (int i = 0; i < 3; ++i) dumper.dump("x", at::full({2}, i), {{"i", i}});
  dumper.dump("y", 5);
  const auto records = capture.records();
  ASSERT_EQ(records.size(), 2u);
  ASSERT_EQ(records.at("x").size(), 3u) << "the Python twin keeps the last only";
  for (int i = 0; i < 3; ++i) {
    const DumpRecord& record = records.at("x").at(static_cast<std::size_t>(i));
    EXPECT_EQ(meta_of(record, "i").toInt(), i);
    EXPECT_EQ(meta_of(record, "dump_index").toInt(), i + 1);
    EXPECT_TRUE(at::equal(record.value.toTensor(), at::full({2}, i)));
  }
  EXPECT_THAT(paths(), IsEmpty());
  EXPECT_EQ(dumper.state().counters.written, 4u);
}

TEST_F(CaptureTest, AScopeThatWasMovedFromHasNoRecords) {
  Dumper dumper(config());
  CaptureScope first = dumper.capture_output();
  dumper.dump("x", 1);
  const CaptureScope second = std::move(first);
  dumper.dump("y", 2);
  EXPECT_EQ(second.records().size(), 2u);
  EXPECT_THAT(first.records(), IsEmpty());  // NOLINT(bugprone-use-after-move): the fact at hand
}

TEST_F(CaptureTest, ValuesAreCopiedWithAllThatIsInThem) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  at::Tensor tensor = at::ones({2});
  at::Tensor leaf = at::ones({2}).requires_grad_();
  c10::Dict<std::string, c10::List<at::Tensor>> dict;
  dict.insert("list", c10::List<at::Tensor>({tensor}));
  dumper.dump("tensor", tensor);
  dumper.dump("leaf", leaf);
  dumper.dump("nested", c10::IValue(dict));
  tensor.fill_(9);
  {
    const at::AutoGradMode no_grad(false);
    leaf.fill_(9);
  }
  dict.insert("late", c10::List<at::Tensor>());
  const auto records = capture.records();
  EXPECT_TRUE(at::equal(records.at("tensor").at(0).value.toTensor(), at::ones({2})));
  EXPECT_TRUE(at::equal(records.at("leaf").at(0).value.toTensor(), at::ones({2})));
  EXPECT_FALSE(records.at("leaf").at(0).value.toTensor().requires_grad());
  const auto nested = records.at("nested").at(0).value.toGenericDict();
  EXPECT_EQ(nested.size(), 1u);
  EXPECT_TRUE(at::equal(nested.at("list").toTensorVector().at(0), at::ones({2})));
}

TEST_F(CaptureTest, CopyOfAViewIsItsOwn) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  const at::Tensor large = at::arange(1'000'000);
  dumper.dump("view", large.slice(0, 10, 13));
  dumper.dump("expanded", at::ones({1}).expand({1000}));
  const auto records = capture.records();
  EXPECT_LE(records.at("view").at(0).value.toTensor().storage().nbytes(), 64u);
  EXPECT_TRUE(at::equal(records.at("view").at(0).value.toTensor(), at::arange(10, 13)));
  EXPECT_TRUE(at::equal(records.at("expanded").at(0).value.toTensor(), at::ones({1000})));
}

TEST_F(CaptureTest, InnermostOfNestedCapturesGetsTheRecords) {
  Dumper dumper(config());
  const auto outer = dumper.capture_output();
  dumper.dump("a", 1);
  {
    const auto inner = dumper.capture_output();
    dumper.dump("b", 1);
    EXPECT_EQ(inner.records().size(), 1u);
    EXPECT_EQ(inner.records().count("b"), 1u);
  }
  dumper.dump("c", 1);
  EXPECT_EQ(outer.records().size(), 2u);
  EXPECT_EQ(outer.records().count("b"), 0u);
}

TEST_F(CaptureTest, FilesAreWrittenAgainAfterwards) {
  Dumper dumper(config());
  { const auto capture = dumper.capture_output(); }
  dumper.dump("x", 1);
  EXPECT_EQ(paths().size(), 1u);
}

TEST_F(CaptureTest, NeedsNoFileOutputAndHonoursSave) {
  Dumper dumper(config({"enable_output_file=false"}));
  const auto capture = dumper.capture_output();
  DumpOptions options;
  options.save = false;
  dumper.dump("unsaved", 1, {}, options);
  dumper.dump("x", 1);
  EXPECT_EQ(capture.records().size(), 1u);
  EXPECT_EQ(capture.records().count("x"), 1u);
}

TEST_F(CaptureTest, ScopeMayBeMovedAndOutliveOtherScopes) {
  Dumper dumper(config());
  std::optional<CaptureScope> outer(dumper.capture_output());
  CaptureScope inner = dumper.capture_output();
  CaptureScope moved = std::move(inner);
  outer.reset();
  dumper.dump("x", 1);
  EXPECT_EQ(moved.records().size(), 1u);
}

TEST_F(CaptureTest, RecordsAreThoseOfTheMomentOfAsking) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  dumper.dump("x", 1);
  const auto before = capture.records();
  dumper.dump("x", 2);
  EXPECT_EQ(before.at("x").size(), 1u);
  EXPECT_EQ(capture.records().at("x").size(), 2u);
}

TEST_F(CaptureTest, ConsoleLinesAreStillWritten) {
  Dumper dumper(config({"enable_output_console=true"}));
  const auto capture = dumper.capture_output();
  dumper.dump("x", 1);
  EXPECT_EQ(log_.count("[Dumper.Value]"), 1u);
}

}  // namespace
}  // namespace dbg
