// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reading and checking the JSON header of a safetensors file.
#include "codec/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/formatted.h"
#include "codec/read_limits.h"

namespace dbg::codec {
namespace {

constexpr std::uint64_t length_bytes = 8;
/// The reference implementation's own limit.
constexpr std::uint64_t max_header_bytes = 100'000'000;

struct FileDtype {
  std::string_view name;
  std::uint64_t bits;
  std::string_view torch_name;
};

constexpr std::array<FileDtype, 22> file_dtypes{{
    {"BOOL", 8, "Bool"},
    {"F4", 4, "Float4_e2m1fn_x2"},
    {"F6_E2M3", 6, ""},
    {"F6_E3M2", 6, ""},
    {"U8", 8, "Byte"},
    {"I8", 8, "Char"},
    {"F8_E5M2", 8, "Float8_e5m2"},
    {"F8_E4M3", 8, "Float8_e4m3fn"},
    {"F8_E8M0", 8, "Float8_e8m0fnu"},
    {"F8_E4M3FNUZ", 8, "Float8_e4m3fnuz"},
    {"F8_E5M2FNUZ", 8, "Float8_e5m2fnuz"},
    {"I16", 16, "Short"},
    {"U16", 16, "UInt16"},
    {"F16", 16, "Half"},
    {"BF16", 16, "BFloat16"},
    {"I32", 32, "Int"},
    {"U32", 32, "UInt32"},
    {"F32", 32, "Float"},
    {"C64", 64, "ComplexFloat"},
    {"F64", 64, "Double"},
    {"I64", 64, "Long"},
    {"U64", 64, "UInt64"},
}};

/// The dtype that this torch's C++ calls `name`; Undefined where it has none: dtypes younger than the oldest supported
/// torch need no version test that way.
at::ScalarType dtype_called(std::string_view name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    if (dtype != at::ScalarType::Undefined && name == c10::toString(dtype)) return dtype;
  }
  return at::ScalarType::Undefined;
}

/// Walks the header's characters and counts those taken: the parser tells its place only where there is no valid JSON.
class CountedChar {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CountedChar(const char* at, std::uint64_t& taken) : at_(at), taken_(&taken) {}

  char operator*() const { return *at_; }
  CountedChar& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountedChar operator++(int) {
    const CountedChar before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedChar& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  std::uint64_t* taken_;
};

/// Takes the header's parse events. The header has one shape, so every event has few places where it may come; the
/// first that comes elsewhere ends the parse, whatever follows it.
class HeaderEvents {
 public:
  using Json = nlohmann::json;

  struct Raw {
    std::string name;
    std::uint64_t place = 0;  // of its description in the header
    std::optional<std::string> dtype;
    std::optional<std::vector<std::uint64_t>> shape;
    std::optional<std::vector<std::uint64_t>> offsets;
  };

  /// `taken` counts the characters that the parser has taken.
  explicit HeaderEvents(const std::uint64_t& taken) : taken_(taken) {}

  std::vector<Raw> entries;
  std::map<std::string, std::string> metadata;
  std::string cause;
  std::uint64_t cause_place = 0;  // of the last character taken

  bool start_object(std::size_t) {
    switch (place_) {
      case Place::outside:
        place_ = Place::root;
        return true;
      case Place::root_value:
        if (key_ == "__metadata__") {
          place_ = Place::metadata;
        } else {
          place_ = Place::entry;
          entries.push_back({key_, taken_ - 1, {}, {}, {}});
        }
        return true;
      default:
        return refuse("an object");
    }
  }

  bool end_object() {
    if (place_ == Place::entry) {
      const Raw& entry = entries.back();
      if (!entry.dtype || !entry.shape || !entry.offsets) {
        return fail(formatted("tensor '{}' lacks dtype, shape or data_offsets", printable(entry.name)));
      }
    }
    place_ = Place::root;
    return true;
  }

  bool key(std::string& text) {
    switch (place_) {
      case Place::root:
        if (!names_.insert(text).second) return fail(formatted("'{}' stands there twice", printable(text)));
        place_ = Place::root_value;
        break;
      case Place::metadata:
        if (metadata.count(text) != 0) return fail(formatted("metadata '{}' twice", printable(text)));
        place_ = Place::metadata_value;
        break;
      default: {
        const Raw& entry = entries.back();
        const bool again = text == "dtype"          ? entry.dtype.has_value()
                           : text == "shape"        ? entry.shape.has_value()
                           : text == "data_offsets" ? entry.offsets.has_value()
                                                    : true;
        if (again) {
          return fail(
              formatted("tensor '{}' has an unknown or second key '{}'", printable(entry.name), printable(text)));
        }
        place_ = Place::entry_value;
      }
    }
    key_ = text;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry_value || key_ == "dtype") return refuse("an array");
    numbers_ = key_ == "shape" ? &entries.back().shape : &entries.back().offsets;
    numbers_->emplace();
    place_ = Place::numbers;
    return true;
  }

  bool end_array() {
    place_ = Place::entry;
    if (key_ == "data_offsets" && (*numbers_)->size() != 2) return refuse("a data_offsets of not two numbers");
    return true;
  }

  bool number_unsigned(std::uint64_t value) {
    if (place_ != Place::numbers) return refuse("a number");
    if ((*numbers_)->size() == kMostDimensions) return refuse("an array of too many numbers");
    (*numbers_)->push_back(value);
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata_value) {
      metadata[key_] = text;
      place_ = Place::metadata;
      return true;
    }
    if (place_ == Place::entry_value && key_ == "dtype") {
      entries.back().dtype = text;
      place_ = Place::entry;
      return true;
    }
    return refuse("a text");
  }

  bool null() { return refuse("a null"); }
  bool boolean(bool) { return refuse("a boolean"); }
  bool number_integer(std::int64_t) { return refuse("a negative number"); }
  bool number_float(double, const std::string&) { return refuse("a number that is no integer"); }
  bool binary(Json::binary_t&) { return refuse("binary data"); }

  bool parse_error(std::size_t, const std::string& last_token, const nlohmann::detail::exception&) {
    return fail(formatted("the header is no valid JSON here, after '{}'", printable(last_token, 40)));
  }

 private:
  enum class Place { outside, root, root_value, metadata, metadata_value, entry, entry_value, numbers };

  bool refuse(std::string_view what) {
    return fail(formatted("{} in the wrong place, after key '{}'", what, printable(key_)));
  }

  bool fail(std::string text) {
    cause = std::move(text);
    cause_place = taken_ == 0 ? 0 : taken_ - 1;
    return false;
  }

  const std::uint64_t& taken_;
  Place place_ = Place::outside;
  std::string key_;
  std::set<std::string> names_;
  std::optional<std::vector<std::uint64_t>>* numbers_ = nullptr;
};

/// The number of bits of a tensor, or nullopt past what torch can express. Zeros count as ones: torch multiplies
/// strides that way, so that an empty tensor can overflow too.
std::optional<std::uint64_t> bits_of(const std::vector<std::uint64_t>& shape, std::uint64_t bits) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t strides = bits;
  std::uint64_t total = bits;
  for (const std::uint64_t size : shape) {
    if (size > limit || __builtin_mul_overflow(strides, std::max<std::uint64_t>(size, 1), &strides) ||
        strides > limit) {
      return std::nullopt;
    }
    total *= size;
  }
  return total;
}

SafetensorsInfo check_entry(const ByteSource& source, HeaderEvents::Raw&& raw, std::uint64_t data_start) {
  const auto fail = [&](std::string_view cause) {
    source.fail(length_bytes + raw.place, formatted("tensor '{}': {}", printable(raw.name), cause));
  };
  const auto known = std::find_if(file_dtypes.begin(), file_dtypes.end(),
                                  [&](const FileDtype& dtype) { return dtype.name == *raw.dtype; });
  if (known == file_dtypes.end()) fail(formatted("unknown dtype '{}'", printable(*raw.dtype)));

  const std::uint64_t begin = raw.offsets->front();
  const std::uint64_t end = raw.offsets->back();
  const std::uint64_t data_bytes = source.size() - data_start;
  if (begin > end || end > data_bytes) {
    fail(formatted("data_offsets [{}, {}] do not lie in the {} bytes of data", begin, end, data_bytes));
  }
  const auto bits = bits_of(*raw.shape, known->bits);
  if (!bits || *bits % 8 != 0 || *bits / 8 != end - begin) {
    fail(formatted("shape [{}] of {} does not make the {} bytes of its data_offsets", fmt::join(*raw.shape, ", "),
                   known->name, end - begin));
  }

  SafetensorsInfo info;
  info.file_dtype = known->name;
  info.dtype = dtype_called(known->torch_name);
  info.shape.assign(raw.shape->begin(), raw.shape->end());
  if (known->bits == 4) {
    if (info.shape.empty() || info.shape.back() % 2 != 0) fail("an F4 tensor needs an even last dimension");
    info.shape.back() /= 2;
  }
  info.offset_bytes = data_start + begin;
  info.size_bytes = end - begin;
  info.name = std::move(raw.name);
  return info;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source) {
  std::array<unsigned char, length_bytes> prefix{};
  source.read(0, prefix.data(), prefix.size());
  std::uint64_t header_bytes = 0;
  for (std::size_t i = prefix.size(); i-- > 0;) header_bytes = header_bytes << 8 | prefix[i];
  if (header_bytes > max_header_bytes) {
    source.fail(0, formatted("header length {} is above {}: no safetensors file", header_bytes, max_header_bytes));
  }
  if (header_bytes > source.size() - length_bytes) {
    source.fail(
        0, formatted("header length {} is above the {} bytes that follow", header_bytes, source.size() - length_bytes));
  }
  std::string text(header_bytes, '\0');
  source.read(length_bytes, text.data(), text.size());
  if (text.empty() || text.front() != '{') source.fail(length_bytes, "the header does not begin with '{'");

  std::uint64_t taken = 0;
  HeaderEvents events(taken);
  const char* begin = text.data();
  if (!nlohmann::json::sax_parse(CountedChar(begin, taken), CountedChar(begin + text.size(), taken), &events)) {
    source.fail(length_bytes + events.cause_place, events.cause);
  }

  const std::uint64_t data_start = length_bytes + header_bytes;
  SafetensorsHeader header;
  header.metadata = std::move(events.metadata);
  header.tensors.reserve(events.entries.size());
  for (auto& raw : events.entries) header.tensors.push_back(check_entry(source, std::move(raw), data_start));
  // Tensors without bytes come before the one that begins at the same place; equals keep the order of the header.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset_bytes, a.size_bytes) < std::pair(b.offset_bytes, b.size_bytes);
  });
  std::uint64_t covered = data_start;
  for (const auto& info : header.tensors) {
    if (info.offset_bytes != covered) {
      source.fail(std::min(info.offset_bytes, covered),
                  formatted("tensor '{}' begins at byte {} where byte {} is next: {}", printable(info.name),
                            info.offset_bytes, covered, info.offset_bytes < covered ? "an overlap" : "a gap"));
    }
    covered += info.size_bytes;
  }
  if (covered != source.size()) {
    source.fail(covered, formatted("{} bytes after the last tensor", source.size() - covered));
  }
  return header;
}

}  // namespace dbg::codec
