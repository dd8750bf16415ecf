// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Holds the text of tags against Python, and the difference of tensors against NumPy.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "dbg/tags.h"
#include "dbg/tensor_info.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using json = nlohmann::json;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// What the oracle wrote, asked once for all tests.
const std::filesystem::path& oracle_folder() {
  static const test::TempFolder folder;
  static const int status =
      std::system(formatted("'{}' '{}/tests/interop/base_oracle.py' '{}'", variable("DBG_TEST_PYTHON"),
                            variable("DBG_TEST_SOURCE_DIR"), folder.path().string())
                      .c_str());
  if (status != 0) throw std::runtime_error("base_oracle.py failed: does DBG_TEST_PYTHON have numpy?");
  return folder.path();
}

TEST(PythonTextInteropTest, RealsPrintAsPythonPrintsThem) {
  std::ifstream lines(oracle_folder() / "floats.txt");
  std::uint64_t bits = 0;
  std::string expected;
  int seen = 0;
  while (lines >> bits >> expected) {
    ASSERT_EQ(python_text(std::bit_cast<double>(bits)), expected) << "bits " << bits;
    ++seen;
  }
  EXPECT_EQ(seen, 20000);
}

at::ScalarType dtype_of(const std::string& numpy_name) {
  static const std::map<std::string, at::ScalarType> dtypes = {{"bool", at::kBool},
                                                               {"uint8", at::kByte},
                                                               {"int8", at::kChar},
                                                               {"int16", at::kShort},
                                                               {"uint16", at::kUInt16},
                                                               {"int32", at::kInt},
                                                               {"uint32", at::kUInt32},
                                                               {"int64", at::kLong},
                                                               {"uint64", at::kUInt64},
                                                               {"float16", at::kHalf},
                                                               {"float32", at::kFloat},
                                                               {"float64", at::kDouble},
                                                               {"complex64", at::kComplexFloat},
                                                               {"complex128", at::kComplexDouble}};
  return dtypes.at(numpy_name);
}

double number_or_infinity(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
}

void expect_close(double got, double want, const char* what) {
  if (std::isinf(want)) {
    EXPECT_EQ(got, want) << what;
  } else {
    EXPECT_NEAR(got, want, std::abs(want) * 1e-12) << what;
  }
}

TEST(TensorDiffInteropTest, AgreesWithNumpy) {
  const json cases = json::parse(content_of(oracle_folder() / "pairs.json"));
  const std::string data = content_of(oracle_folder() / "pairs.bin");
  ASSERT_EQ(cases.size(), 400U);
  const auto tensor = [&data](const json& at, const json& dtype, const std::vector<std::int64_t>& shape) {
    at::Tensor fresh = at::empty(shape, dtype_of(dtype));
    if (fresh.numel() > 0) std::memcpy(fresh.mutable_data_ptr(), data.data() + at.get<std::size_t>(), fresh.nbytes());
    return fresh;
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& one = cases[i];
    SCOPED_TRACE(formatted("case {}: {} against {}, shape {}", i, one["dtype_a"].get<std::string>(),
                           one["dtype_b"].get<std::string>(), one["shape"].dump()));
    const auto shape = one["shape"].get<std::vector<std::int64_t>>();
    const at::Tensor a = tensor(one["at_a"], one["dtype_a"], shape);
    const at::Tensor b = tensor(one["at_b"], one["dtype_b"], shape);
    const TensorDiff result = diff(a, b);
    const json& expected = one["expected"];
    ASSERT_TRUE(result.compared) << result.note;
    EXPECT_EQ(result.differing, expected["differing"].get<std::int64_t>());
    EXPECT_EQ(result.nan_in_both, expected["nan_in_both"].get<std::int64_t>());
    EXPECT_EQ(result.nan_only_in_a, expected["nan_only_in_a"].get<std::int64_t>());
    EXPECT_EQ(result.nan_only_in_b, expected["nan_only_in_b"].get<std::int64_t>());
    EXPECT_EQ(result.inf_in_both, expected["inf_in_both"].get<std::int64_t>());
    EXPECT_EQ(result.inf_unequal, expected["inf_unequal"].get<std::int64_t>());
    EXPECT_EQ(result.same_bits, expected["same_bits"].get<bool>());
    EXPECT_EQ(result.max_at, expected["max_at"].get<std::vector<std::int64_t>>());
    expect_close(result.rel_diff, number_or_infinity(expected["rel_diff"]), "rel_diff");
    expect_close(result.max_abs, number_or_infinity(expected["max_abs"]), "max_abs");
    expect_close(result.mean_abs, number_or_infinity(expected["mean_abs"]), "mean_abs");
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace dbg
