// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Escaping, cutting and parsing of record names.
#include "dump/record_name.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/fnv_hash.h"

namespace dbg {
namespace {

constexpr std::string_view kSeparator = "___";
constexpr std::string_view kSuffix = ".pt";
constexpr std::size_t kHashDigits = 16;
// Of a key or value only so much is escaped: more than any name can show. The rest counts by its hash.
constexpr std::size_t kEscapedBytes = 4096;
// More pairs than a name has room for, the separators alone taken.
constexpr std::size_t kMostPieces = 64;

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

void append_escaped_byte(std::string& out, char c) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  out.push_back('%');
  out.push_back(kDigits[byte >> 4]);
  out.push_back(kDigits[byte & 15]);
}

// Escapes one key or value. A `_` at an end is escaped when it could merge with the separator next to it: in front of a
// key, behind a value (a single `=` stands between key and value, so the other two ends can't).
std::string escape(std::string_view text, bool is_key) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    bool unsafe = byte < 0x20 || byte == 0x7f || c == '/' || (is_key && c == '=');
    if (c == '%') unsafe = i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2]);
    if (c == '_') {
      const bool third = out.size() >= 2 && out.ends_with("__");
      const bool touches = is_key ? i == 0 : i + 1 == text.size();
      unsafe = third || touches;
    }
    if (unsafe) {
      append_escaped_byte(out, c);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2])) {
      int byte = 0;
      std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
      out.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string hex_digits(std::uint64_t hash) {
  std::string digits(kHashDigits, '0');
  for (std::size_t i = 0; i < kHashDigits; ++i) digits[i] = "0123456789abcdef"[(hash >> (60 - 4 * i)) & 15];
  return digits;
}

// Stable over platforms and versions, which a name needs; collisions only merge names of over 200 bytes.
std::string hash_text(std::string_view text) {
  return hex_digits(base::fnv_hash(text));
}

// The same by eight bytes at a time, for texts of megabytes.
std::string hash_long_text(std::string_view text) {
  std::uint64_t hash = base::kFnvStart ^ text.size();
  while (text.size() >= 8) {
    std::uint64_t word = 0;
    for (unsigned i = 0; i < 8; ++i) word |= std::uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
    hash = (hash ^ word) * base::kFnvFactor;
    hash ^= hash >> 32;
    text.remove_prefix(8);
  }
  return hex_digits(base::fnv_hash(text, hash));
}

// The longest prefix of at most `bytes` that ends neither inside a UTF-8 character nor inside an escape.
std::string_view safe_prefix(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  for (std::size_t back = 1; back <= 2 && back <= end; ++back) {
    if (text[end - back] == '%' && end - back + 2 < text.size() && is_hex(text[end - back + 1]) &&
        is_hex(text[end - back + 2])) {
      end -= back;
      break;
    }
  }
  return text.substr(0, end);
}

struct Piece {
  std::string key;         // escaped, its `=` included
  std::string value;       // escaped, as much of it as a name may show
  std::string value_hash;  // empty where `value` is whole
};

Piece make_piece(std::string_view key, std::string_view value) {
  Piece piece;
  piece.key = escape(key.substr(0, kEscapedBytes), true);
  if (key.size() > kEscapedBytes) piece.key += '~' + hash_long_text(key);
  piece.key += '=';
  piece.value = escape(value.substr(0, kEscapedBytes), false);
  if (value.size() > kEscapedBytes) piece.value_hash = hash_long_text(value);
  return piece;
}

std::size_t total_size(const std::vector<Piece>& pieces) {
  std::size_t size = kSuffix.size();
  for (const Piece& piece : pieces) size += piece.key.size() + piece.value.size() + kSeparator.size();
  return pieces.empty() ? size : size - kSeparator.size();
}

// Removes the last pairs down to `count`; `dropped` gets a hash of them and of what it had.
void drop_down_to(std::vector<Piece>& pieces, std::size_t count, std::string& dropped) {
  if (pieces.size() <= count) return;
  std::string all;
  for (std::size_t i = count; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    all += piece.key;
    all += piece.value;
    all += piece.value_hash;
    all += kSeparator;
  }
  all += dropped;
  dropped = hash_text(all);
  pieces.resize(count);
}

void cut_to_fit(std::vector<Piece>& pieces) {
  constexpr std::size_t kShortestCut = kHashDigits + 1;
  std::string dropped;
  drop_down_to(pieces, kMostPieces, dropped);
  while (total_size(pieces) > kLongestRecordName) {
    Piece& longest = *std::max_element(pieces.begin(), pieces.end(),
                                       [](const Piece& a, const Piece& b) { return a.value.size() < b.value.size(); });
    const std::size_t excess = total_size(pieces) - kLongestRecordName;
    if (longest.value.size() <= kShortestCut) break;
    std::string mark(1, '~');
    mark += longest.value_hash.empty() ? hash_text(longest.value) : longest.value_hash;
    const std::size_t keep =
        longest.value.size() > excess + mark.size() ? longest.value.size() - excess - mark.size() : 0;
    longest.value = std::string(safe_prefix(longest.value, keep)) + mark;
  }
  // Only very many or very long keys come here: the last pairs give way to a hash of them all.
  while (total_size(pieces) + (dropped.empty() ? 0 : kSeparator.size() + 5 + kHashDigits) > kLongestRecordName &&
         pieces.size() > 1) {
    drop_down_to(pieces, pieces.size() - 1, dropped);
  }
  if (!dropped.empty()) pieces.push_back({"more=", dropped, {}});
}

bool is_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

std::string format_record_name(const std::vector<RecordNamePair>& pairs) {
  std::vector<Piece> pieces;
  pieces.reserve(pairs.size());
  std::string text;
  for (const auto& [key, value] : pairs) {
    if (value.kind() == TagKind::text) {
      pieces.push_back(make_piece(key, value.text()));
      continue;
    }
    text.clear();
    append_python_text(text, value);
    pieces.push_back(make_piece(key, text));
  }
  if (total_size(pieces) > kLongestRecordName) cut_to_fit(pieces);

  std::string name;
  name.reserve(total_size(pieces));
  for (const Piece& piece : pieces) {
    if (!name.empty()) name += kSeparator;
    name += piece.key;
    name += piece.value;
  }
  if (name.starts_with('.')) name.replace(0, 1, "%2E");
  name += kSuffix;
  return name;
}

std::optional<Tags> parse_record_name(std::string_view file_name) {
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  file_name.remove_suffix(kSuffix.size());
  Tags tags;
  while (true) {
    const std::size_t end = file_name.find(kSeparator);
    const std::string_view piece = file_name.substr(0, end);
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    tags.set(unescape(piece.substr(0, equals)), TagValue(unescape(piece.substr(equals + 1))));
    if (end == std::string_view::npos) break;
    file_name.remove_prefix(end + kSeparator.size());
  }
  for (const std::string_view key : {"step", "rank", "dump_index"}) {
    const TagValue* value = tags.find(key);
    if (value == nullptr || !is_integer(value->view().text())) return std::nullopt;
  }
  if (!tags.contains("name")) return std::nullopt;
  return tags;
}

}  // namespace dbg
