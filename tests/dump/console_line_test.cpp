// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about the line that the console gets for a record.
#include "dump/console_line.h"

#include <ATen/ATen.h>

#include <string>
#include <tuple>
#include <vector>

#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

std::string line_of(const c10::IValue& value) {
  return console_line("Value", "/d/x.pt", value);
}

TEST(ConsoleLineTest, SaysKindPathShapeDtypeDeviceAndSample) {
  const std::string line = line_of(at::arange(6.0).reshape({2, 3}).to(at::kFloat));
  EXPECT_THAT(line, HasSubstr("[Dumper.Value]"));
  EXPECT_THAT(line, HasSubstr("/d/x.pt"));
  EXPECT_THAT(line, HasSubstr("shape=[2, 3]"));
  EXPECT_THAT(line, HasSubstr("dtype=float32"));
  EXPECT_THAT(line, HasSubstr("device=cpu"));
  EXPECT_THAT(line, HasSubstr("sample=[0, 1, 2"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(ConsoleLineTest, SamplesEveryDtype) {
  EXPECT_THAT(line_of(at::ones({2}).to(at::kBool)), EndsWith("[True, True]"));
  EXPECT_THAT(line_of(at::full({1}, 0.5).to(at::kHalf)), EndsWith("[0.5]"));
  EXPECT_THAT(line_of(at::full({1}, 0.5).to(at::kFloat8_e4m3fn)), EndsWith("[0.5]"));
  EXPECT_THAT(line_of(at::full({1}, -7, at::kLong)), EndsWith("[-7]"));
  EXPECT_THAT(line_of(at::full({1}, 7, at::kByte)), EndsWith("[7]"));
  EXPECT_THAT(line_of(at::full({1}, c10::complex<double>(1, -2), at::kComplexDouble)), EndsWith("[1-2j]"));
  EXPECT_THAT(line_of(at::full({1}, -1, at::kLong).view(at::kUInt64)), EndsWith("[18446744073709551615]"));
}

// torch's stand-ins for zeros have no memory to look at.
TEST(ConsoleLineTest, TakesTensorsWithoutMemory) {
  EXPECT_THAT(line_of(at::_efficientzerotensor({3, 2}, at::kFloat)), EndsWith("sample=[0, 0, ...]"));
  const at::Tensor complex = at::_efficientzerotensor({2}, at::kComplexFloat);
  EXPECT_THAT(line_of(complex), EndsWith("sample=[0+0j, 0+0j]"));
  EXPECT_THAT(line_of(complex.conj()), HasSubstr("shape=[2] dtype=complex64"));
  const at::Tensor taken = at::ones({4});
  taken.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  EXPECT_THAT(line_of(taken), EndsWith("sample=[no memory]"));
}

TEST(ConsoleLineTest, TakesEveryShape) {
  EXPECT_THAT(line_of(at::empty({0, 3})), EndsWith("shape=[0, 3] dtype=float32 device=cpu sample=[]"));
  EXPECT_THAT(line_of(at::full({}, 3)), HasSubstr("shape=[] "));
  EXPECT_THAT(line_of(at::full({}, 3)), EndsWith("sample=[3]"));
  EXPECT_THAT(line_of(at::arange(6).reshape({2, 3}).t()), EndsWith("sample=[0, 3, ...]"));
  const std::string line = line_of(at::arange(1000));
  EXPECT_THAT(line, HasSubstr("sample=[0, 1, 2"));
  EXPECT_THAT(line, EndsWith("...]"));
  EXPECT_LT(line.size(), 200u);
}

TEST(ConsoleLineTest, LeavesAutogradAlone) {
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const at::Tensor hidden = leaf * 2;
  const auto uses = hidden.use_count();
  (void)line_of(hidden);
  EXPECT_EQ(hidden.use_count(), uses);
  EXPECT_EQ(hidden._version(), 0u);
}

TEST(ConsoleLineTest, DescribesOtherValues) {
  EXPECT_THAT(line_of(c10::IValue()), EndsWith("sample=None"));
  EXPECT_THAT(line_of(true), EndsWith("sample=True"));
  EXPECT_THAT(line_of(3), EndsWith("sample=3"));
  EXPECT_THAT(line_of(0.5), EndsWith("sample=0.5"));
  EXPECT_THAT(line_of(std::string("text")), EndsWith("sample=text"));
  EXPECT_THAT(line_of(std::vector<int64_t>{1, 2}), EndsWith("sample=2 elements"));
  EXPECT_THAT(line_of(std::make_tuple(int64_t{1}, true)), EndsWith("sample=2 elements"));
  c10::Dict<std::string, int64_t> dict;
  dict.insert("a", 1);
  EXPECT_THAT(line_of(dict), EndsWith("sample=1 entries"));
  EXPECT_LT(line_of(std::string(10'000, 'x')).size(), 300u);
}

TEST(ConsoleLineTest, IsOneLineWhateverTheText) {
  EXPECT_EQ(line_of(std::string("a\nb\rc")).find_first_of("\n\r"), std::string::npos);
}

TEST(ConsoleLineTest, SurvivesValuesWithoutData) {
  EXPECT_THAT(line_of(at::empty({3}, at::TensorOptions().device(at::kMeta))), HasSubstr("device=meta"));
  EXPECT_NO_THROW(line_of(at::Tensor()));
  EXPECT_THAT(line_of(at::Tensor()), HasSubstr("undefined"));
}

class ConsoleOutputTest : public test::DumperFixture {};

TEST_F(ConsoleOutputTest, OneLineARecordWithKindAndPath) {
  Dumper dumper(
      config({"enable_output_console=true", "enable_grad=true", "enable_model_value=true", "enable_model_grad=true"}));
  struct Model {
    std::vector<std::pair<std::string, at::Tensor>> named_parameters() const { return {{"w", weight}}; }
    at::Tensor weight;
  };
  const at::Tensor weight = at::ones({2}).requires_grad_();
  dumper.dump("x", weight);
  weight.sum().backward();
  dumper.dump_model(Model{weight});
  const auto lines = log_.lines();
  std::vector<std::string> kinds;
  for (const auto& line : lines) {
    EXPECT_THAT(line.text, testing::StartsWith("[Dumper, rank=0, t="));
    const std::size_t at = line.text.find("[Dumper.");
    ASSERT_NE(at, std::string::npos) << line.text;
    kinds.push_back(line.text.substr(at, line.text.find(']', at) + 1 - at));
  }
  EXPECT_THAT(kinds,
              testing::ElementsAre("[Dumper.Value]", "[Dumper.Grad]", "[Dumper.ParamValue]", "[Dumper.ParamGrad]"));
  for (const std::string& path : paths()) EXPECT_EQ(log_.count(path), 1u) << path;
}

}  // namespace
}  // namespace dbg
