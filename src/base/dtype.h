// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Dtypes: what they are called, what kind of numbers they hold, and how raw elements become numbers and text.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace dbg::base {

/// `opaque` elements (quantized, packed, bits) can be compared as bytes and not read as numbers.
enum class NumberKind { boolean, integer, real, complex, opaque };

/// The dtype's name as Python prints it, without `torch.`: `float32`, `bfloat16`, `bool`.
std::string dtype_name(at::ScalarType dtype);

NumberKind number_kind(at::ScalarType dtype) noexcept;

/// Whether a double holds each value of the dtype: all but the integers of 64 bits.
bool fits_double(at::ScalarType dtype) noexcept;

/// Numbers an element is made of: 2 for complex, else 1.
inline std::size_t numbers_per_element(at::ScalarType dtype) noexcept {
  return number_kind(dtype) == NumberKind::complex ? 2 : 1;
}

/// Turns `elements` raw elements into numbers (complex: real and imaginary part in turn). `Wide` is double or long
/// double; the latter also holds every int64 and uint64. Raw elements need no alignment.
/// Throws: LogicError for an opaque dtype.
template <class Wide>
void widen(at::ScalarType dtype, const std::byte* raw, std::size_t elements, Wide* out);

/// One raw element with all its digits: `3`, `True`, `0.1`, `1-2j`, `nan`; an opaque one as hexadecimal bytes.
std::string element_text(at::ScalarType dtype, const std::byte* raw);

}  // namespace dbg::base
