// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes, reads and compares headers.
#include "graft/frame.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/fnv_hash.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::graft {
namespace {

constexpr std::string_view kMagic = "DBGGRAFT";
constexpr std::size_t kMostDims = 64;
constexpr std::size_t kNameAt = 592;
constexpr std::size_t kMostNameBytes = 440;
constexpr std::size_t kReasonAt = 1034;
constexpr std::size_t kMostReasonBytes = 500;

void put(std::byte* out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

std::uint64_t get(const std::byte* in, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(in[i]);
  return value;
}

void put_text(std::byte* out, const std::string& text, std::size_t most) {
  const std::size_t size = std::min(text.size(), most);
  put(out, size, 2);
  std::memcpy(out + 2, text.data(), size);
}

[[noreturn]] void refuse(std::string what) {
  throw IoError(formatted("a graft header that no rank of dbg wrote: {}", std::move(what)));
}

std::string get_text(const std::byte* in, std::size_t most, std::string_view what) {
  const std::size_t size = get(in, 2);
  if (size > most) refuse(formatted("{} of {} bytes, of at most {}", what, size, most));
  std::string text(reinterpret_cast<const char*>(in + 2), size);
  // It goes into a line of the log.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

// What the sizes and the dtype make of a tensor.
void check_tensor(const FrameHeader& header) {
  const int dtype = header.dtype;
  if (dtype < 0 || dtype >= static_cast<int>(c10::ScalarType::NumOptions)) refuse(formatted("dtype {}", dtype));
  const auto type = static_cast<c10::ScalarType>(dtype);
  if (type == c10::ScalarType::Undefined || c10::isQIntType(type)) refuse(formatted("dtype {}", dtype));
  auto bytes = static_cast<std::int64_t>(c10::elementSize(type));
  bool is_empty = false;
  for (const std::int64_t size : header.sizes) {
    if (size < 0) refuse(formatted("a dimension of {} elements", size));
    is_empty = is_empty || size == 0;
  }
  for (const std::int64_t size : header.sizes) {
    if (!is_empty && __builtin_mul_overflow(bytes, size, &bytes)) refuse("sizes whose product overflows");
  }
  if (is_empty) bytes = 0;
  if (bytes != header.tensor_bytes) {
    refuse(formatted("{} bytes of tensor where its sizes make {}", header.tensor_bytes, bytes));
  }
}

std::string place_text(const FrameHeader& header) {
  const std::string nth = header.occurrence == 0 ? "" : formatted(" (number {} of that name)", header.occurrence + 1);
  return formatted("'{}'{} {} of step {}", header.name, nth, header.direction == GraftDirection::b2t ? "b2t" : "t2b",
                   header.step);
}

// Ranks that are at the same call, together.
std::string where_all_are(const std::vector<FrameHeader>& headers) {
  std::map<std::string, std::string> ranks_at;
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    const std::string place = place_text(headers[rank]);
    std::string& ranks = ranks_at[place];
    if (ranks.empty()) order.push_back(place);
    ranks += ranks.empty() ? std::to_string(rank) : ", " + std::to_string(rank);
  }
  std::string text;
  for (const std::string& place : order) {
    text += formatted("{}graft rank{} {} at {}", text.empty() ? "" : "; ",
                      ranks_at[place].find(',') == std::string::npos ? "" : "s", ranks_at[place], place);
  }
  return text;
}

}  // namespace

std::uint64_t hash_of_name(const std::string& name) noexcept {
  return base::fnv_hash(name);
}

void write_header(const FrameHeader& header, std::byte* out) {
  std::memset(out, 0, kHeaderBytes);
  std::memcpy(out, kMagic.data(), kMagic.size());
  put(out + 8, kFrameVersion, 4);
  put(out + 12, header.has_value ? 1 : 0, 1);
  put(out + 13, header.direction == GraftDirection::t2b ? 1 : 0, 1);
  put(out + 14, static_cast<std::uint8_t>(header.dtype), 1);
  put(out + 16, header.sequence, 8);
  put(out + 24, static_cast<std::uint64_t>(header.step), 8);
  put(out + 32, header.occurrence, 8);
  put(out + 40, header.name_hash, 8);
  put(out + 48, static_cast<std::uint64_t>(header.tensor_bytes), 8);
  put(out + 56, static_cast<std::uint64_t>(header.info_bytes), 8);
  put(out + 64, static_cast<std::uint64_t>(header.max_bytes), 8);
  put(out + 72, header.digest, 4);
  put(out + 76, header.sizes.size(), 4);
  for (std::size_t i = 0; i < header.sizes.size(); ++i) {
    put(out + 80 + 8 * i, static_cast<std::uint64_t>(header.sizes[i]), 8);
  }
  put_text(out + kNameAt, header.name, kMostNameBytes);
  put_text(out + kReasonAt, header.reason, kMostReasonBytes);
}

FrameHeader read_header(const std::byte* in) {
  if (std::memcmp(in, kMagic.data(), kMagic.size()) != 0) refuse("its first bytes are others");
  if (const std::uint64_t version = get(in + 8, 4); version != kFrameVersion) {
    refuse(formatted("version {}, where this one reads {}", version, kFrameVersion));
  }
  FrameHeader header;
  const std::uint64_t state = get(in + 12, 1);
  const std::uint64_t direction = get(in + 13, 1);
  if (state > 1 || direction > 1) refuse(formatted("state {} and direction {}", state, direction));
  header.has_value = state == 1;
  header.direction = direction == 1 ? GraftDirection::t2b : GraftDirection::b2t;
  header.dtype = static_cast<std::int8_t>(get(in + 14, 1));
  header.sequence = get(in + 16, 8);
  header.step = static_cast<std::int64_t>(get(in + 24, 8));
  header.occurrence = get(in + 32, 8);
  header.name_hash = get(in + 40, 8);
  header.tensor_bytes = static_cast<std::int64_t>(get(in + 48, 8));
  header.info_bytes = static_cast<std::int64_t>(get(in + 56, 8));
  header.max_bytes = static_cast<std::int64_t>(get(in + 64, 8));
  header.digest = static_cast<std::uint32_t>(get(in + 72, 4));
  const std::uint64_t dims = get(in + 76, 4);
  if (dims > kMostDims) refuse(formatted("{} dimensions", dims));
  for (std::size_t i = 0; i < dims; ++i) header.sizes.push_back(static_cast<std::int64_t>(get(in + 80 + 8 * i, 8)));
  header.name = get_text(in + kNameAt, kMostNameBytes, "a name");
  header.reason = get_text(in + kReasonAt, kMostReasonBytes, "a reason");
  if (header.tensor_bytes < 0 || header.info_bytes < 0 || header.max_bytes <= 0) {
    refuse(formatted("{} bytes of tensor, {} of info, at most {}", header.tensor_bytes, header.info_bytes,
                     header.max_bytes));
  }
  if (header.tensor_bytes > 0 || !header.sizes.empty()) check_tensor(header);
  return header;
}

Decision decide(const std::vector<FrameHeader>& headers, int rank) {
  const FrameHeader& own = headers[static_cast<std::size_t>(rank)];
  std::int64_t latest = own.step;
  bool is_one_step = true;
  bool is_one_call = true;
  for (const FrameHeader& header : headers) {
    latest = std::max(latest, header.step);
    is_one_step = is_one_step && header.step == own.step;
    is_one_call = is_one_call && header.name_hash == own.name_hash && header.occurrence == own.occurrence &&
                  header.direction == own.direction;
  }
  if (is_one_step && is_one_call) return {Agreement::meet, {}};
  const Agreement agreement = !is_one_step && own.step == latest ? Agreement::again : Agreement::skip;
  return {agreement, where_all_are(headers)};
}

std::int64_t common_limit(const std::vector<FrameHeader>& headers) {
  std::int64_t least = headers.front().max_bytes;
  for (const FrameHeader& header : headers) least = std::min(least, header.max_bytes);
  return least;
}

}  // namespace dbg::graft
