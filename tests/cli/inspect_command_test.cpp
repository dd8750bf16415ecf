// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// `dbg inspect`: a line a tensor, the first bad one, and files that can't be read.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"
#include "compare/run_folder.h"

namespace dbg {
namespace {

using test::ProgramResult;
using test::run_program;
using test::RunFolder;
using testing::HasSubstr;
using testing::Not;

TEST(InspectCommandTest, OneLineATensorWithItsNumbers) {
  RunFolder folder;
  folder.add("x", at::tensor({1.0F, 0.0F, -3.0F}), {.rank = 2, .step = 1, .tags = {{"layer_id", 3}}});
  folder.add("n", std::int64_t{5});
  const ProgramResult result = run_program({"inspect", folder.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out,
            "step=0 rank=0 n  5\n"
            "step=1 rank=2 x layer_id=3  float32[3]  min=-3 max=1 mean=-0.666667 abs_max=3 nan=0 inf=0 zero=1\n");
}

TEST(InspectCommandTest, FirstBadStopsAtTheFirstNanOrInfinity) {
  RunFolder folder;
  folder.add("good", at::ones({2}));
  EXPECT_EQ(run_program({"inspect", "--first-bad", folder.path()}).status, 0);
  folder.add("bad", at::tensor({1.0, std::nan("")}));
  folder.add("worse", at::tensor({INFINITY}));
  const ProgramResult result = run_program({"inspect", "--first-bad", folder.path()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("bad  float64[2]"));
  EXPECT_THAT(result.out, Not(HasSubstr("worse")));
}

TEST(InspectCommandTest, AnInfinityAloneIsBad) {
  RunFolder folder;
  folder.add("good", at::ones({2}));
  folder.add("bad", at::tensor({1.0F, -INFINITY}));
  folder.add("later", at::tensor({std::nan("")}));
  const ProgramResult result = run_program({"inspect", "--first-bad", folder.path()});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "step=0 rank=0 bad  float32[2]  min=1 max=1 mean=1 abs_max=1 nan=0 inf=1 zero=0\n");
}

TEST(InspectCommandTest, ANumberThatIsNoTensorIsBadAsWell) {
  RunFolder folder;
  folder.add("loss", static_cast<double>(INFINITY));
  const ProgramResult result = run_program({"inspect", "--first-bad", folder.path()});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "step=0 rank=0 loss  inf\n");
}

TEST(InspectCommandTest, AFileThatCanNotBeReadIsALineAndStatusTwo) {
  RunFolder folder;
  const std::string broken = folder.add("broken", at::ones({2}));
  folder.add("whole", at::ones({2}));
  std::ofstream(broken, std::ios::trunc) << "garbage";
  const ProgramResult result = run_program({"inspect", folder.path()});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, HasSubstr("unreadable: "));
  EXPECT_THAT(result.out, HasSubstr("whole  float32[2]"));
}

TEST(InspectCommandTest, JsonIsAnObjectALine) {
  RunFolder folder;
  folder.add("x", at::ones({2, 2}), {.tags = {{"layer_id", 3}}});
  folder.add("y", at::tensor({std::nan("")}));
  std::istringstream lines(run_program({"inspect", "--json", folder.path()}).out);
  std::string line;
  std::getline(lines, line);
  const auto first = nlohmann::json::parse(line);
  EXPECT_EQ(first.at("name"), "x");
  EXPECT_EQ(first.at("shape"), nlohmann::json::array({2, 2}));
  EXPECT_EQ(first.at("tags").at("layer_id"), "3");
  std::getline(lines, line);
  EXPECT_TRUE(nlohmann::json::parse(line).at("min").is_null());
  EXPECT_EQ(nlohmann::json::parse(line).at("nan"), 1);
}

TEST(InspectCommandTest, ValuesShowsTheCorners) {
  RunFolder folder;
  folder.add("x", at::arange(100, at::kLong).reshape({10, 10}));
  const ProgramResult result = run_program({"inspect", "--values", folder.path()});
  EXPECT_THAT(result.out, HasSubstr("      0  1  2  7  8  9\n"));
  EXPECT_THAT(result.out, HasSubstr("      90  91  92  97  98  99\n"));
}

TEST(InspectCommandTest, WhereChoosesAndFilesOfAnyNameAreTaken) {
  RunFolder folder;
  for (int layer = 0; layer < 3; ++layer) folder.add("x", at::ones({2}), {.tags = {{"layer_id", layer}}});
  const ProgramResult chosen = run_program({"inspect", "--where", "layer_id == 1", folder.path()});
  EXPECT_THAT(chosen.out, HasSubstr("layer_id=1"));
  EXPECT_THAT(chosen.out, Not(HasSubstr("layer_id=2")));
  const test::TempFolder other;
  std::filesystem::copy_file(folder.add("z", at::ones({2})), other / "renamed.pt");
  EXPECT_THAT(run_program({"inspect", (other / "renamed.pt").string()}).out, HasSubstr("renamed.pt  float32[2]"));
  EXPECT_EQ(run_program({"inspect", (other / "none.pt").string()}).status, 2);
}

}  // namespace
}  // namespace dbg
