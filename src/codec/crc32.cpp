// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// CRC-32 by eight tables, and by folding with carry-less multiplication on x86-64.
#include "codec/crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#include <wmmintrin.h>
#endif

namespace dbg::codec {
namespace {

// Polynomials are kept bit-reflected, as zip's checksum is: bit 31 is the coefficient of x^0.
constexpr std::uint32_t kPolynomial = 0xEDB88320u;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1u) != 0 ? kPolynomial : 0u);
}

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    tables[0][byte] = value;
  }
  // Table k is a byte followed by k zero bytes.
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFFu];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t load_little_endian_32(const unsigned char* bytes) noexcept {
  return static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8 |
         static_cast<std::uint32_t>(bytes[2]) << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

// Runs the register `state` (the checksum before its final inversion) over the bytes.
std::uint32_t advance_by_tables(std::uint32_t state, const unsigned char* bytes, std::size_t size) noexcept {
  for (; size >= 8; bytes += 8, size -= 8) {
    const std::uint32_t low = state ^ load_little_endian_32(bytes);
    const std::uint32_t high = load_little_endian_32(bytes + 4);
    state = kTables[7][low & 0xFFu] ^ kTables[6][(low >> 8) & 0xFFu] ^ kTables[5][(low >> 16) & 0xFFu] ^
            kTables[4][low >> 24] ^ kTables[3][high & 0xFFu] ^ kTables[2][(high >> 8) & 0xFFu] ^
            kTables[1][(high >> 16) & 0xFFu] ^ kTables[0][high >> 24];
  }
  for (; size > 0; ++bytes, --size) state = (state >> 8) ^ kTables[0][(state ^ *bytes) & 0xFFu];
  return state;
}

#if defined(__x86_64__)

// x^exponent modulo the polynomial, in the place where a carry-less product of reflected operands comes out right.
constexpr long long fold_constant(int exponent) {
  std::uint32_t value = 0x80000000u;
  for (int i = 0; i < exponent; ++i) value = times_x(value);
  return static_cast<long long>(static_cast<std::uint64_t>(value) << 1);
}

// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
// Its published constants hold the derivation to account.
static_assert(fold_constant(4 * 128 + 32) == 0x154442bd4 && fold_constant(4 * 128 - 32) == 0x1c6e41596);
static_assert(fold_constant(128 + 32) == 0x1751997d0 && fold_constant(128 - 32) == 0x0ccaa009e);

constexpr std::size_t kFoldThreshold = 128;

// Carries `value` over the distance that `constants` stand for and adds what stands there.
__attribute__((target("pclmul,sse2"))) inline __m128i fold(__m128i value, __m128i constants, __m128i next) noexcept {
  const __m128i low = _mm_clmulepi64_si128(value, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse2"))) inline __m128i load(const unsigned char* bytes) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// Needs at least 64 bytes. Four lanes are folded over 64 bytes at a time, then into one; the 16 bytes left have the
// same remainder as all that went in, so the tables finish them.
__attribute__((target("pclmul,sse2"))) std::uint32_t advance_by_folding(std::uint32_t state, const unsigned char* bytes,
                                                                        std::size_t size) noexcept {
  const __m128i over_64_bytes = _mm_set_epi64x(fold_constant(4 * 128 - 32), fold_constant(4 * 128 + 32));
  const __m128i over_16_bytes = _mm_set_epi64x(fold_constant(128 - 32), fold_constant(128 + 32));
  __m128i lane0 = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i lane1 = load(bytes + 16);
  __m128i lane2 = load(bytes + 32);
  __m128i lane3 = load(bytes + 48);
  bytes += 64;
  size -= 64;
  for (; size >= 64; bytes += 64, size -= 64) {
    lane0 = fold(lane0, over_64_bytes, load(bytes));
    lane1 = fold(lane1, over_64_bytes, load(bytes + 16));
    lane2 = fold(lane2, over_64_bytes, load(bytes + 32));
    lane3 = fold(lane3, over_64_bytes, load(bytes + 48));
  }
  __m128i all = fold(lane0, over_16_bytes, lane1);
  all = fold(all, over_16_bytes, lane2);
  all = fold(all, over_16_bytes, lane3);
  for (; size >= 16; bytes += 16, size -= 16) all = fold(all, over_16_bytes, load(bytes));
  unsigned char rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), all);
  return advance_by_tables(advance_by_tables(0, rest, sizeof rest), bytes, size);
}

bool can_fold() noexcept {
  return __builtin_cpu_supports("pclmul") != 0;  // a load and a test
}

#endif

}  // namespace

std::uint32_t crc32_portable(const void* data, std::size_t size, std::uint32_t previous) noexcept {
  return ~advance_by_tables(~previous, static_cast<const unsigned char*>(data), size);
}

std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t previous) noexcept {
#if defined(__x86_64__)
  if (size >= kFoldThreshold && can_fold()) {
    return ~advance_by_folding(~previous, static_cast<const unsigned char*>(data), size);
  }
#endif
  return crc32_portable(data, size, previous);
}

}  // namespace dbg::codec
