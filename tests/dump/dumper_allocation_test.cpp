// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The facts that a Dumper that is off allocates nothing, and that one that is on never throws for want of memory: both
// by this executable's own operator new.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/runtime.h"
#include "dump/dumper_fixture.h"
#include "dump/dumper_impl.h"

namespace {

thread_local std::size_t allocations = 0;
// How many more this thread may have before there is no memory; negative: any number.
thread_local long allocations_left = -1;

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
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

TEST(DumperAllocationTest, TheFreeFunctionsAllocateNothingWhileOff) {
  const at::Tensor value = at::ones({3});
  const Model model;
  const DumpOptions options;
  dbg::dump("the first call reads the environment", value);
  ASSERT_FALSE(Dumper::global().is_enabled());
  const std::size_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    dbg::dump("attention_output_with_a_long_name", value, {{"layer_id", i}, {"text", "prefill"}});
    dbg::dump("attention_output_with_a_long_name", value, {{"layer_id", i}}, options);
    dbg::dump_dict("a_prefix_that_is_longer_than_a_small_string", model.parameters, {{"layer_id", i}});
    dbg::dump_model(model);
    dbg::step();
  }
  EXPECT_EQ(allocations - before, 0u);
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

class DumperMemoryTest : public test::DumperFixture {
 protected:
  // With file and console; but for `dump_dict` of an IValue, nothing then makes a dictionary of libtorch's, which ends
  // the process where it gets no memory (its move constructor allocates and is noexcept).
  DumperConfig both(std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), {"enable_output_file=true", "enable_output_console=true", "enable_grad=true"});
    return config(overrides);
  }

  // Calls it with memory for 0, 1, 2 ... allocations, until it has what it needs.
  template <class Call>
  static void expect_never_throws(const char* what, Call&& call) {
    for (long given = 0; given < 5000; ++given) {
      bool has_thrown = false;
      allocations_left = given;
      try {
        call();
      } catch (...) {
        has_thrown = true;
      }
      const long left = allocations_left;
      allocations_left = -1;
      ASSERT_FALSE(has_thrown) << what << " with memory for " << given << " allocations";
      if (left > 0) return;
    }
    FAIL() << what << " never had enough";
  }
};

TEST_F(DumperMemoryTest, NothingThatAModelCallsThrowsForWantOfMemory) {
  Dumper dumper(both({"enable_model_value=true", "enable_model_grad=true"}));
  dumper.dump("first", at::ones({1}));  // what is made once a process
  const at::Tensor value = at::ones({3});
  const at::Tensor leaf = at::ones({3}).requires_grad_();
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("a_key_that_is_too_long_for_a_small_string", value);
  const c10::IValue dict_value = dict;
  const Model model;
  const DumpModelOptions model_options;
  expect_never_throws("dump", [&] { dumper.dump("a_name_that_is_too_long_for_a_small_string", value, {{"i", 1}}); });
  expect_never_throws("dump of a leaf", [&] { dumper.dump("leaf", leaf); });
  expect_never_throws("dump_dict", [&] { dumper.dump_dict("dict", dict_value); });
  expect_never_throws("dump_model", [&] { dumper.dump_model(model, model_options); });
  expect_never_throws("step", [&] { dumper.step(); });
  expect_never_throws("set_ctx", [&] { dumper.set_ctx({{"a_key_that_is_too_long_for_a_small_string", 1}}); });
  expect_never_throws("ContextScope", [&] { const ContextScope scope(dumper, {{"layer_id", 1}, {"phase", "x"}}); });
  {
    const ParticipantScope other(std::make_shared<const Participant>(1, 2));
    expect_never_throws("the first dump of a rank", [&] { dumper.dump("x", value); });
  }
  EXPECT_GT(dumper.state().counters.failed, 10u);
}

TEST_F(DumperMemoryTest, AGradientThatComesWhenThereIsNoMemoryIsLeftOut) {
  std::atomic<unsigned char> enabled{0};
  const auto impl = std::make_shared<detail::DumperImpl>(both({}), &enabled, nullptr);
  detail::GradCapture capture;
  capture.name = "a_name_that_is_too_long_for_a_small_string";
  capture.tags.set("layer_id", 1);
  const at::Tensor grad = at::ones({3});
  // A rank that the Dumper has not met.
  capture.participant = std::make_shared<const Participant>(1, 2);
  expect_never_throws("a gradient", [&] { impl->write_future_grad(capture, grad); });
  EXPECT_GE(log_.count("[Dumper.Grad]"), 1u);
  EXPECT_GT(impl->state().counters.failed, 3u);
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
