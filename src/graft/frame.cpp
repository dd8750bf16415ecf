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
constexpr std::size_t kSizesAt = 72;
constexpr std::size_t kNameAt = 584;
constexpr std::size_t kMostNameBytes = 438;
constexpr std::size_t kReasonAt = 1024;
constexpr std::size_t kMostReasonBytes = 510;
constexpr std::size_t kTagsAt = 1536;
constexpr std::size_t kMostTagsBytes = 1022;
constexpr char kEndOfKey = '\x1f';
constexpr char kEndOfTag = '\x1e';
// Of one key or value; what is longer is cut, and told from others by a hash.
constexpr std::size_t kMostTextBytes = 100;
constexpr std::size_t kCutTextBytes = 80;

// It goes into a line of the log.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

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
  return std::string(reinterpret_cast<const char*>(in + 2), size);
}

std::string bounded(const std::string& text) {
  if (text.size() <= kMostTextBytes) return printable(text);
  return printable(formatted("{}...{:016x}", text.substr(0, kCutTextBytes), hash_of_name(text)));
}

std::string text_of(const FrameTags& tags) {
  std::string text;
  for (const auto& [key, value] : tags) {
    const std::string one = key + kEndOfKey + value + kEndOfTag;
    if (text.size() + one.size() <= kMostTagsBytes) text += one;
  }
  return text;
}

FrameTags tags_in(const std::string& text) {
  FrameTags tags;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find(kEndOfTag, at);
    const std::size_t middle = text.find(kEndOfKey, at);
    if (end == std::string::npos || middle > end) refuse("tags without an end");
    tags.emplace_back(printable(text.substr(at, middle - at)), printable(text.substr(middle + 1, end - middle - 1)));
    at = end + 1;
  }
  return tags;
}

const std::string* find_tag(const FrameTags& tags, std::string_view key) {
  const auto found = std::find_if(tags.begin(), tags.end(), [key](const auto& tag) { return tag.first == key; });
  return found != tags.end() ? &found->second : nullptr;
}

// Of the tags that all have, the keys of those that are not equal everywhere.
std::vector<std::string> unlike_tags(const std::vector<FrameHeader>& headers) {
  std::vector<std::string> unlike;
  for (const auto& [key, value] : headers.front().tags) {
    bool has_everyone = true;
    bool is_equal = true;
    for (const FrameHeader& header : headers) {
      const std::string* const found = find_tag(header.tags, key);
      has_everyone = has_everyone && found != nullptr;
      is_equal = is_equal && found != nullptr && *found == value;
    }
    if (has_everyone && !is_equal) unlike.push_back(key);
  }
  return unlike;
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

// With those tags by which the calls differ.
std::string place_text(const FrameHeader& header, const std::vector<std::string>& unlike) {
  const std::string nth = header.occurrence == 0 ? "" : formatted(" (number {} of that name)", header.occurrence + 1);
  std::string tags;
  for (const std::string& key : unlike) tags += formatted(" {}={}", key, *find_tag(header.tags, key));
  return formatted("'{}'{}{} {} of step {}", header.name, tags, nth,
                   header.direction == GraftDirection::b2t ? "b2t" : "t2b", header.step);
}

// Ranks that are at the same call, together.
std::string where_all_are(const std::vector<FrameHeader>& headers, const std::vector<std::string>& unlike) {
  std::map<std::string, std::string> ranks_at;
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    const std::string place = place_text(headers[rank], unlike);
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

FrameTags tags_of_call(const Tags& tags) {
  constexpr std::string_view kRankSuffix = "_rank";
  FrameTags made;
  for (const auto& [key, value] : tags) {
    if (key == "name" || key == "rank" || std::string_view(key).ends_with(kRankSuffix)) continue;
    const std::string text = python_text(value.view());
    if (key == "recompute_status" && text == "disabled") continue;
    made.emplace_back(bounded(key), bounded(text));
  }
  return made;
}

void write_header(const FrameHeader& header, std::byte* out) {
  if (header.sizes.size() > kMostDims) {
    throw LogicError(formatted("a graft header of {} dimensions, of at most {}", header.sizes.size(), kMostDims));
  }
  std::memset(out, 0, kHeaderBytes);
  std::memcpy(out, kMagic.data(), kMagic.size());
  put(out + 8, kFrameVersion, 4);
  put(out + 12, header.has_value ? 1 : 0, 1);
  put(out + 13, header.direction == GraftDirection::t2b ? 1 : 0, 1);
  put(out + 14, static_cast<std::uint8_t>(header.dtype), 1);
  put(out + 16, static_cast<std::uint64_t>(header.step), 8);
  put(out + 24, header.occurrence, 8);
  put(out + 32, header.name_hash, 8);
  put(out + 40, static_cast<std::uint64_t>(header.tensor_bytes), 8);
  put(out + 48, static_cast<std::uint64_t>(header.info_bytes), 8);
  put(out + 56, static_cast<std::uint64_t>(header.max_bytes), 8);
  put(out + 64, header.digest, 4);
  put(out + 68, header.sizes.size(), 4);
  for (std::size_t i = 0; i < header.sizes.size(); ++i) {
    put(out + kSizesAt + 8 * i, static_cast<std::uint64_t>(header.sizes[i]), 8);
  }
  put_text(out + kNameAt, header.name, kMostNameBytes);
  put_text(out + kReasonAt, header.reason, kMostReasonBytes);
  put_text(out + kTagsAt, text_of(header.tags), kMostTagsBytes);
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
  header.step = static_cast<std::int64_t>(get(in + 16, 8));
  header.occurrence = get(in + 24, 8);
  header.name_hash = get(in + 32, 8);
  header.tensor_bytes = static_cast<std::int64_t>(get(in + 40, 8));
  header.info_bytes = static_cast<std::int64_t>(get(in + 48, 8));
  header.max_bytes = static_cast<std::int64_t>(get(in + 56, 8));
  header.digest = static_cast<std::uint32_t>(get(in + 64, 4));
  const std::uint64_t dims = get(in + 68, 4);
  if (dims > kMostDims) refuse(formatted("{} dimensions", dims));
  for (std::size_t i = 0; i < dims; ++i) {
    header.sizes.push_back(static_cast<std::int64_t>(get(in + kSizesAt + 8 * i, 8)));
  }
  header.name = printable(get_text(in + kNameAt, kMostNameBytes, "a name"));
  header.reason = printable(get_text(in + kReasonAt, kMostReasonBytes, "a reason"));
  header.tags = tags_in(get_text(in + kTagsAt, kMostTagsBytes, "tags"));
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
  const std::vector<std::string> unlike = unlike_tags(headers);
  if (is_one_step && is_one_call && unlike.empty()) return {Agreement::meet, {}};
  const Agreement agreement = !is_one_step && own.step == latest ? Agreement::again : Agreement::skip;
  return {agreement, where_all_are(headers, unlike)};
}

std::int64_t common_limit(const std::vector<FrameHeader>& headers) {
  std::int64_t least = headers.front().max_bytes;
  for (const FrameHeader& header : headers) least = std::min(least, header.max_bytes);
  return least;
}

}  // namespace dbg::graft
