// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a tensor holds, in a few numbers, and how two tensors differ. Reads tensors only; never changes one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// A tensor in a few numbers, as `describe` finds it.
struct TensorInfo {
  std::string dtype;                  ///< as Python prints it, without `torch.`: `float32`, `int64`, `float8_e4m3fn`
  std::vector<std::int64_t> shape;    ///< empty for a 0-dim tensor
  std::vector<std::int64_t> strides;  ///< in elements
  std::string device;                 ///< `cpu`, `cuda:0`
  std::int64_t elements = 0;
  std::int64_t bytes = 0;  ///< of the elements, not of the storage that a view looks into

  /// Whether the values were looked at. If not, `note` says why and all below is as it is here.
  bool has_values = false;
  std::string note;

  // Over the finite values; NaN where there is none. A complex tensor's real and imaginary parts count as two numbers
  // each, but for `abs_max`, which is of the complex value.
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
  double mean = std::numeric_limits<double>::quiet_NaN();
  double abs_max = std::numeric_limits<double>::quiet_NaN();
  // The same two with all digits: a double holds not every int64. Empty where there is no finite value.
  std::string min_text;
  std::string max_text;

  // Counted in elements; a complex one is NaN if a part is, else infinite if a part is, and zero if both are.
  std::int64_t nan_count = 0;
  std::int64_t inf_count = 0;
  std::int64_t zero_count = 0;

  std::string sample;  ///< the first and last values in logical order: `[0.1, 0.2, 0.3, ..., 0.9]`
};

/// Looks through a tensor.
///
/// A tensor on a device is copied to the host block by block, which waits for its stream: not to be called while that
/// stream is capturing.
/// Threads: safe to call from any thread, as long as nobody writes the tensor meanwhile.
/// Never throws, never takes part in autograd, never needs more than a few MiB. A tensor without readable values
/// (undefined, meta, sparse, quantized, a wrapper) is described as far as it goes, and `note` says why no further.
DBG_API TensorInfo describe(const at::Tensor& tensor);

/// One line: `float32[2, 3] cpu min=-1 max=2 mean=0.5 abs_max=2 nan=0 inf=0 zero=1 [-1, 0, ...]`.
DBG_API std::string to_text(const TensorInfo& info);

/// How two tensors `a` and `b` differ, as `diff` finds it.
///
/// A place where both are NaN is equal, and so is one where both are infinite with the same sign. A place where only
/// one side is NaN, or that is infinite and not equal, makes `rel_diff`, `max_abs` and `mean_abs` infinite: whatever
/// tolerance they are held against, it fails. So do two tensors that could not be compared.
struct TensorDiff {
  /// Whether the values were compared, place by place. If not, `note` says why.
  bool compared = false;
  std::string note;

  bool same_shape = false;
  bool same_dtype = false;
  /// Same shape, same dtype, and each element the same bits (so -0.0 is not 0.0, though equal to it).
  bool same_bits = false;
  std::vector<std::int64_t> shape_a;
  std::vector<std::int64_t> shape_b;
  std::string dtype_a;
  std::string dtype_b;

  std::int64_t elements = 0;
  std::int64_t differing = 0;  ///< elements that are not equal, by value; exact for integers of 64 bits

  /// 1 - 2*sum(xy)/sum(xx+yy): 0 for equal tensors (two of zeros too), 2 for opposite ones.
  double rel_diff = std::numeric_limits<double>::infinity();
  double max_abs = std::numeric_limits<double>::infinity();
  double mean_abs = std::numeric_limits<double>::infinity();
  // Where `max_abs` is first reached, and both values there with all digits; empty when no element differs.
  std::vector<std::int64_t> max_at;
  std::string a_at_max;
  std::string b_at_max;
  // The first place whose bits differ; empty when none does or the dtypes do.
  std::vector<std::int64_t> first_bits_at;

  std::int64_t nan_in_both = 0;
  std::int64_t nan_only_in_a = 0;
  std::int64_t nan_only_in_b = 0;
  std::int64_t inf_in_both = 0;  ///< equal infinities
  std::int64_t inf_unequal = 0;  ///< infinite on one side or both, not equal, and no NaN

  /// Whether the tensors were compared and no element differs.
  bool same_values() const noexcept { return compared && differing == 0; }
};

/// Compares two tensors element by element. Different dtypes are compared by value; complex numbers by both parts.
///
/// Source: rel_diff is the measure of SGLang's comparator, computed as sum((x-y)^2)/sum(xx+yy), which is the same
/// number without its cancellation.
/// Threads, devices: as for `describe`. The two may be on different devices.
/// Never throws, never takes part in autograd, never needs more than a few MiB.
DBG_API TensorDiff diff(const at::Tensor& a, const at::Tensor& b);

/// One line: `same bits`, or `3 of 6 elements differ, rel_diff=1.2e-08 max_abs=0.25 at [1, 2] (0.5 against 0.75) ...`.
DBG_API std::string to_text(const TensorDiff& difference);

}  // namespace dbg
