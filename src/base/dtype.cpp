// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One switch over the dtypes, and what is built on it.
#include "base/dtype.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Float8_e8m0fnu.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <type_traits>

#include "base/fork_lock.h"
#include "base/formatted.h"
#include "base/vectorized.h"
#include "dbg/error.h"

namespace dbg::base {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "long double must hold every int64 and uint64");

// A bool's byte may be neither 0 nor 1 in memory that came from elsewhere; reading it as a bool would be undefined.
struct BoolByte {
  std::uint8_t byte;
};

template <class T>
struct Complex {
  T real;
  T imaginary;
};

template <class T>
inline constexpr bool is_complex = false;
template <class T>
inline constexpr bool is_complex<Complex<T>> = true;

// Calls `code` with a value of the element type, or returns false for an opaque dtype. A dtype that an older torch does
// not know must not be named here: it is opaque, or found by its name.
template <class Code>
bool with_element_type(at::ScalarType dtype, Code&& code) {
  switch (dtype) {
    case at::ScalarType::Bool:
      return code(BoolByte{}), true;
    case at::ScalarType::Byte:
      return code(std::uint8_t{}), true;
    case at::ScalarType::Char:
      return code(std::int8_t{}), true;
    case at::ScalarType::Short:
      return code(std::int16_t{}), true;
    case at::ScalarType::UInt16:
      return code(std::uint16_t{}), true;
    case at::ScalarType::Int:
      return code(std::int32_t{}), true;
    case at::ScalarType::UInt32:
      return code(std::uint32_t{}), true;
    case at::ScalarType::Long:
      return code(std::int64_t{}), true;
    case at::ScalarType::UInt64:
      return code(std::uint64_t{}), true;
    case at::ScalarType::Half:
      return code(c10::Half{}), true;
    case at::ScalarType::BFloat16:
      return code(c10::BFloat16{}), true;
    case at::ScalarType::Float:
      return code(float{}), true;
    case at::ScalarType::Double:
      return code(double{}), true;
    case at::ScalarType::Float8_e4m3fn:
      return code(c10::Float8_e4m3fn{}), true;
    case at::ScalarType::Float8_e4m3fnuz:
      return code(c10::Float8_e4m3fnuz{}), true;
    case at::ScalarType::Float8_e5m2:
      return code(c10::Float8_e5m2{}), true;
    case at::ScalarType::Float8_e5m2fnuz:
      return code(c10::Float8_e5m2fnuz{}), true;
    case at::ScalarType::Float8_e8m0fnu:
      return code(c10::Float8_e8m0fnu{}), true;
    case at::ScalarType::ComplexHalf:
      return code(Complex<c10::Half>{}), true;
    case at::ScalarType::ComplexFloat:
      return code(Complex<float>{}), true;
    case at::ScalarType::ComplexDouble:
      return code(Complex<double>{}), true;
    default:
      return false;
  }
}

template <class T>
T load(const std::byte* raw) {
  T value;
  std::memcpy(&value, raw, sizeof value);
  return value;
}

template <class T>
float to_float(T value) {
  return static_cast<float>(value);
}

// The 256 values of an 8-bit float, computed once: c10's own conversion is several times slower than a load.
template <class T>
std::array<float, 256> values_of_float8() {
  std::array<float, 256> all{};
  for (std::size_t bits = 0; bits < all.size(); ++bits) {
    all[bits] = to_float(T(static_cast<std::uint8_t>(bits), T::from_bits()));
  }
  return all;
}

template <class Wide, class T>
void widen_all(const std::byte* raw, std::size_t count, Wide* out) {
  if constexpr (std::is_same_v<T, BoolByte>) {
    for (std::size_t i = 0; i < count; ++i) out[i] = raw[i] != std::byte{0} ? Wide(1) : Wide(0);
  } else if constexpr (std::is_arithmetic_v<T>) {
    vectorized([=]() DBG_INLINED {
      for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Wide>(load<T>(raw + i * sizeof(T)));
    });
  } else if constexpr (sizeof(T) == 1) {
    const auto& values = made_once<&values_of_float8<T>>();
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Wide>(values[static_cast<std::uint8_t>(raw[i])]);
  } else {
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Wide>(to_float(load<T>(raw + i * sizeof(T))));
  }
}

template <class T>
std::string number_text(T value) {
  if constexpr (std::is_same_v<T, BoolByte>) {
    return value.byte != 0 ? "True" : "False";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return formatted("{}", value);
  } else {
    return formatted("{}", to_float(value));
  }
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  if (dtype == at::ScalarType::Undefined) return "undefined";
  try {
    return std::string(c10::getDtypeNames(dtype).first);
  } catch (const std::exception&) {
    // Younger than torch's own list: by its rule, the C++ name in lower case.
    std::string name = c10::toString(dtype);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
  }
}

NumberKind number_kind(at::ScalarType dtype) noexcept {
  NumberKind kind = NumberKind::opaque;
  with_element_type(dtype, [&kind](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, BoolByte>) {
      kind = NumberKind::boolean;
    } else if constexpr (is_complex<T>) {
      kind = NumberKind::complex;
    } else if constexpr (std::is_integral_v<T>) {
      kind = NumberKind::integer;
    } else {
      kind = NumberKind::real;
    }
  });
  return kind;
}

bool fits_double(at::ScalarType dtype) noexcept {
  return dtype != at::ScalarType::Long && dtype != at::ScalarType::UInt64;
}

template <class Wide>
void widen(at::ScalarType dtype, const std::byte* raw, std::size_t elements, Wide* out) {
  const bool known = with_element_type(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (is_complex<T>) {
      widen_all<Wide, decltype(T::real)>(raw, 2 * elements, out);
    } else {
      widen_all<Wide, T>(raw, elements, out);
    }
  });
  if (!known) throw LogicError(formatted("elements of {} can't be read as numbers", dtype_name(dtype)));
}

template void widen<double>(at::ScalarType, const std::byte*, std::size_t, double*);
template void widen<long double>(at::ScalarType, const std::byte*, std::size_t, long double*);

std::string element_text(at::ScalarType dtype, const std::byte* raw) {
  std::string text;
  const bool known = with_element_type(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (is_complex<T>) {
      const std::string imaginary = number_text(load<T>(raw).imaginary);
      const bool signed_already = imaginary.front() == '-';
      text = number_text(load<T>(raw).real) + (signed_already ? "" : "+") + imaginary + "j";
    } else {
      text = number_text(load<T>(raw));
    }
  });
  if (known) return text;
  text = "0x";
  for (std::size_t i = 0; i < c10::elementSize(dtype); ++i) {
    text += formatted("{:02x}", static_cast<unsigned>(raw[i]));
  }
  return text;
}

}  // namespace dbg::base
