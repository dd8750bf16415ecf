// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A filter's answer costs no allocation, whatever is asked of tags as they are; counted by this executable's own
// operator new.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "dump/filter.h"

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace dbg {
namespace {

// As the Dumper's own: nothing is built for a lookup.
class TwoTags final : public TagLookup {
 public:
  TagView find(std::string_view key) const noexcept override {
    if (key == "name") return "layers.3.attn_out";
    if (key == "layer_id") return 3;
    return {};
  }
};

TEST(FilterAllocationTest, AnswersWithoutAllocating) {
  for (const char* const expression :
       {R"(layer_id in (0, 1) and name.startswith("attn"))", R"(search("attn|mlp", name))",
        R"(search("l.*[ab]t+n", name))", "3 <= layer_id < 7 and name[:6] == 'layers'", "(layer_id, name) == (3, 'x')",
        "name + 'x' == 'y'", "layer_id % 2 in {0, 1} and len(name) > 3 and name[::-1] != 'x'",
        "name.endswith(('q', 'k')) or phase is None"}) {
    const Filter filter = Filter::parse(expression);
    const TwoTags tags;
    filter.matches(tags);  // RE2 builds its automaton as it goes
    const std::size_t before = allocations;
    for (int i = 0; i < 100; ++i) filter.matches(tags);
    EXPECT_EQ(allocations, before) << expression;
  }
}

TEST(FilterAllocationTest, CountsAllocations) {
  const std::size_t before = allocations;
  const Filter filter = Filter::parse("layer_id == 1");
  EXPECT_GT(allocations, before);
}

}  // namespace
}  // namespace dbg
