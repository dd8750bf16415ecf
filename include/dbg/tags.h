// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tags: the small `key = value` facts that tell one dump from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// What a tag's value is. The five kinds are those that a file name, a filter and Python agree on.
enum class TagKind : std::uint8_t { none, boolean, integer, real, text };

/// A borrowed, trivially copyable tag value; costs nothing to make. Text must outlive it.
class TagView {
 public:
  constexpr TagView() noexcept : integer_(0) {}
  constexpr TagView(std::nullptr_t) noexcept : integer_(0) {}

  // Constrained by type, so that a `const char*` is text and never a bool, and a char is nothing at all.
  template <class T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0>
  constexpr TagView(T value) noexcept : kind_(TagKind::boolean), boolean_(value) {}

  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
                                          !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> &&
                                          !std::is_same_v<T, char32_t>,
                                      int> = 0>
  constexpr TagView(T value) noexcept : kind_(TagKind::integer), integer_(static_cast<std::int64_t>(value)) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t)) {
      // Beyond int64 only a real can hold it; the loss is that of Python's float(value).
      if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max())) {
        kind_ = TagKind::real;
        real_ = static_cast<double>(value);
      }
    }
  }

  template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  constexpr TagView(T value) noexcept : kind_(TagKind::real), real_(static_cast<double>(value)) {}

  template <class T, std::enable_if_t<std::is_convertible_v<const T&, std::string_view> &&
                                          !std::is_same_v<std::decay_t<T>, std::nullptr_t>,
                                      int> = 0>
  constexpr TagView(const T& value) noexcept : TagView(TextMark{}, view_of(value)) {}

  constexpr TagKind kind() const noexcept { return kind_; }
  constexpr bool is_none() const noexcept { return kind_ == TagKind::none; }

  // Each is meaningful only for its own kind.
  constexpr bool boolean() const noexcept { return boolean_; }
  constexpr std::int64_t integer() const noexcept { return integer_; }
  constexpr double real() const noexcept { return real_; }
  constexpr std::string_view text() const noexcept { return {text_, text_bytes_}; }

 private:
  struct TextMark {};
  template <class T>
  static constexpr std::string_view view_of(const T& value) noexcept {
    if constexpr (std::is_convertible_v<const T&, const char*>) {
      const char* pointer = value;
      if (pointer == nullptr) return {"", 0};
    }
    return value;
  }
  constexpr TagView(TextMark, std::string_view text) noexcept
      : kind_(TagKind::text),
        text_bytes_(text.size() < kLongestText ? static_cast<std::uint32_t>(text.size()) : kLongestText),
        text_(text.data()) {}

  // 16 bytes in all. Text ends at 4 GiB.
  static constexpr std::uint32_t kLongestText = std::numeric_limits<std::uint32_t>::max();
  TagKind kind_ = TagKind::none;
  std::uint32_t text_bytes_ = 0;
  union {
    bool boolean_;
    std::int64_t integer_;
    double real_;
    const char* text_;
  };
};

/// One borrowed `{key, value}`, as hot calls take them: `{{"layer_id", 3}, {"phase", "prefill"}}`.
/// Nothing is copied or allocated until a dump is known to be kept.
struct TagRef {
  template <class T>
  constexpr TagRef(std::string_view tag_key, const T& tag_value) noexcept : key(tag_key), value(tag_value) {}

  std::string_view key;
  TagView value;
};

/// The tags of a hot call.
using TagList = std::initializer_list<TagRef>;

namespace detail {
/// Calls `use` with a list equal to `tags`, made here. Behind a check, it keeps the caller's own list out of memory:
/// the compiler sees that only values are taken from it, and writes none of them before the check (g++ and clang leave
/// a list whose address goes to a function where it was built). Longer lists are passed on, and are built by the
/// caller.
template <class Use>
DBG_ALWAYS_INLINE void with_tags_made_here(TagList tags, const Use& use) {
  const TagRef* const tag = tags.begin();
  switch (tags.size()) {
    case 1:
      return use({tag[0]});
    case 2:
      return use({tag[0], tag[1]});
    case 3:
      return use({tag[0], tag[1], tag[2]});
    case 4:
      return use({tag[0], tag[1], tag[2], tag[3]});
    case 5:
      return use({tag[0], tag[1], tag[2], tag[3], tag[4]});
    case 6:
      return use({tag[0], tag[1], tag[2], tag[3], tag[4], tag[5]});
    default:
      return use(tags);
  }
}
}  // namespace detail

/// An owned tag value: None, bool, int, float or text.
class DBG_API TagValue {
 public:
  TagValue() noexcept = default;
  TagValue(TagView view);
  template <class T,
            std::enable_if_t<std::is_constructible_v<TagView, const T&> && !std::is_same_v<std::decay_t<T>, TagView> &&
                                 !std::is_same_v<std::decay_t<T>, TagValue>,
                             int> = 0>
  TagValue(const T& value) : TagValue(TagView(value)) {}

  TagView view() const noexcept;
  TagKind kind() const noexcept { return static_cast<TagKind>(value_.index()); }

  friend bool operator==(const TagValue& a, const TagValue& b) noexcept { return a.value_ == b.value_; }
  friend bool operator!=(const TagValue& a, const TagValue& b) noexcept { return !(a == b); }

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string> value_;
};

/// Owned tags: ordered by first insertion, keys unique.
/// Threads: one thread at a time.
class DBG_API Tags {
 public:
  using Entry = std::pair<std::string, TagValue>;

  Tags() = default;
  Tags(TagList list);

  /// Sets `key`; a key that is there keeps its place.
  void set(std::string_view key, TagValue value);
  /// Removes `key`; returns whether it was there.
  bool erase(std::string_view key);
  /// The value under `key`, or nullptr. Valid until the next change.
  const TagValue* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }

  std::size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }
  void clear() noexcept { entries_.clear(); }
  std::vector<Entry>::const_iterator begin() const noexcept { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const noexcept { return entries_.end(); }

  friend bool operator==(const Tags& a, const Tags& b) noexcept { return a.entries_ == b.entries_; }
  friend bool operator!=(const Tags& a, const Tags& b) noexcept { return !(a == b); }

 private:
  std::vector<Entry> entries_;
};

/// Appends `value` as Python's `str()` prints it: `None`, `True`, `3`, `0.5`, `1e+20`, text as it is.
DBG_API void append_python_text(std::string& out, TagView value);
/// As `append_python_text`, into a new string.
DBG_API std::string python_text(TagView value);

}  // namespace dbg
