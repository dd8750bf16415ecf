// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The fact that a Dumper that is off allocates nothing; counted by this executable's own operator new.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "dbg/dumper.h"

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, size == 0 ? 1 : size) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
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
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace dbg {
namespace {

struct Model {
  const std::vector<std::pair<std::string, at::Tensor>>& named_parameters() const { return parameters; }
  std::vector<std::pair<std::string, at::Tensor>> parameters{{"a.rather.long.name.of.a.parameter", at::ones({2})}};
};

TEST(DumperAllocationTest, TheCountCounts) {
  const std::size_t before = allocations;
  const std::string text(100, 'x');
  EXPECT_GT(allocations, before) << text;
}

TEST(DumperAllocationTest, OffAllocatesNothing) {
  Dumper dumper;
  const at::Tensor value = at::ones({3});
  const Model model;
  const std::vector<std::pair<std::string, at::Tensor>> dict = model.parameters;
  const std::string phase = "a phase whose name is longer than a small string may be";
  const DumpModelOptions model_options;
  const std::size_t before = allocations;
  const auto uses = value.use_count();
  for (int i = 0; i < 1000; ++i) {
    dumper.dump("attention_output_with_a_long_name", value, {{"layer_id", i}, {"phase", phase}, {"text", "prefill"}});
    dumper.dump("lazy", [&] { return at::ones({3}); }, {{"layer_id", i}});
    dumper.dump_dict("dict", dict, {{"layer_id", i}});
    dumper.dump_model(model, model_options);
    dumper.step();
  }
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(value.use_count(), uses);
}

// These count once the Dumper is on, and so can't be skipped; but a layer's scope must not cost a dozen allocations.
TEST(DumperAllocationTest, ContextWhileOffAllocatesLittle) {
  Dumper dumper;
  dumper.set_ctx({{"phase", "prefill"}});
  { const ContextScope first(dumper, {{"layer_id", 0}}); }
  std::size_t before = allocations;
  for (int i = 0; i < 1000; ++i) const ContextScope scope(dumper, {{"layer_id", i}});
  EXPECT_LE(allocations - before, 3000u) << "the tags, who holds them, and the key";
  before = allocations;
  for (int i = 0; i < 1000; ++i) dumper.set_ctx({{"phase", "prefill"}, {"not_there", nullptr}});
  EXPECT_EQ(allocations - before, 0u);
}

TEST(DumperAllocationTest, SwitchedOffAgainAllocatesNothing) {
  DumperConfig config;
  config.enable = true;
  config.enable_output_file = false;
  config.enable_output_console = false;
  Dumper dumper(config);
  const at::Tensor value = at::ones({3});
  dumper.dump("x", value, {{"layer_id", 1}});
  config.enable = false;
  dumper.configure(config);
  const std::size_t before = allocations;
  for (int i = 0; i < 1000; ++i) dumper.dump("attention_output_with_a_long_name", value, {{"layer_id", i}});
  EXPECT_EQ(allocations - before, 0u);
}

}  // namespace
}  // namespace dbg
