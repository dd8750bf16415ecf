// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Turns an exception of any kind into one line of text.
#include "base/fence.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <exception>
#include <new>
#include <string_view>

namespace dbg::base {
namespace {

constexpr std::size_t kLongestCause = 2000;

std::string one_line(std::string_view text) {
  // torch appends its backtrace and hints after the first lines; the cause stands before.
  for (const std::string_view tail : {"\nException raised from", "\nC++ CapturedTraceback"}) {
    text = text.substr(0, text.find(tail));
  }
  std::string line;
  line.reserve(text.size());
  for (const char c : text.substr(0, kLongestCause)) line.push_back(c == '\n' || c == '\r' ? ' ' : c);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace

std::string describe_current_exception() noexcept {
  try {
    try {
      throw;
    } catch (const c10::Error& error) {
      return one_line(error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
      return "out of memory";
    } catch (const std::exception& error) {
      return one_line(error.what());
    } catch (const std::string& text) {
      return one_line(text);
    } catch (const char* text) {
      return text != nullptr ? one_line(text) : std::string();
    } catch (...) {
      return "an exception that is not a std::exception";
    }
  } catch (...) {
    return {};  // no memory left even for the words
  }
}

}  // namespace dbg::base
