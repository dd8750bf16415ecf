// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The facts' bodies.
#include "graft/graft_facts.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/formatted.h"
#include "dump/stream_capture.h"

namespace dbg::test {
namespace {

using testing::HasSubstr;

void one_to_one(SideRank& side) {
  for (int i = 0; i < 5; ++i) {
    const at::Tensor tensor = matrix_of(side.is_baseline ? i : -1);
    side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, matrix_of(i)));
    const at::Tensor back = matrix_of(side.is_baseline ? -1 : i);
    side.dumper.dump("y", back);
    EXPECT_TRUE(at::equal(back, matrix_of(i)));
    const at::Tensor own = matrix_of(side.is_baseline ? 1 : 2);
    side.dumper.dump("z", own);
    EXPECT_TRUE(at::equal(own, matrix_of(side.is_baseline ? 1 : 2)));
  }
  EXPECT_EQ(side.counters().sent, 5u);
  EXPECT_EQ(side.counters().grafted, 5u);
  EXPECT_EQ(side.counters().bytes_sent, 5u * 24);
  EXPECT_EQ(side.counters().bytes_received, 5u * 24);
  EXPECT_EQ(side.grafter.state().peers, side.grafter.config().plain_wire ? "python" : "dbg");
}

void unequal_shapes(SideRank& side) {
  const at::Tensor wrong = side.is_baseline ? at::ones({3, 2}) : at::zeros({2, 3});
  side.dumper.dump("x_wrong", wrong);
  if (!side.is_baseline) {
    EXPECT_TRUE(at::equal(wrong, at::zeros({2, 3})));
  }
  const at::Tensor right = matrix_of(side.is_baseline ? 4 : -1);
  side.dumper.dump("x_right", right);
  EXPECT_TRUE(at::equal(right, matrix_of(4)));
}

void failing_transform(SideRank& side) {
  for (const char* how : {"throw", "odd", "shape", "dtype", "undefined"}) {
    const at::Tensor before = at::tensor({1.0f, std::nanf("7"), -0.0f});
    const at::Tensor tensor = side.is_baseline ? at::ones({3}) : before.clone();
    side.dumper.dump("x", tensor, {{"how", how}});
    if (!side.is_baseline) {
      EXPECT_TRUE(same_bits(tensor, before)) << how;
    }
  }
  const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : -1);
  side.dumper.dump("x", tensor, {{"how", "well"}});
  EXPECT_TRUE(at::equal(tensor, matrix_of(1)));
  if (!side.is_baseline) {
    EXPECT_EQ(side.counters().failed, 5u);
    EXPECT_EQ(side.counters().grafted, 1u);
  }
}

void extras_in_order(SideRank& side) {
  const at::Tensor tensor = matrix_of(1);
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("rank", static_cast<std::int64_t>(side.rank));
  dict.insert("scale", at::ones({2}));
  const c10::IValue extras(dict);
  DumpOptions options;
  if (side.is_baseline && side.rank != 1) options.grafter_extras = &extras;
  side.dumper.dump("x", tensor, {}, options);
  EXPECT_TRUE(at::equal(tensor, matrix_of(side.is_baseline ? 1 : 11))) << tensor;
}

void extras_expanded(SideRank& side) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("scale", at::full({1}, 2.0f).expand({4096}));
  const c10::IValue extras(dict);
  DumpOptions options;
  options.grafter_extras = &extras;
  const at::Tensor tensor = matrix_of(side.is_baseline ? 3 : -1);
  side.dumper.dump("x", tensor, {}, options);
  EXPECT_TRUE(at::equal(tensor, matrix_of(side.is_baseline ? 3 : 6))) << tensor;
}

void no_tensor(SideRank& side) {
  const auto undefined = at::Tensor();
  const at::Tensor sparse = at::eye(2).to_sparse();
  const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : -1);
  if (side.is_baseline) {
    side.dumper.dump("x", "text");
    side.dumper.dump("x", undefined);
    side.dumper.dump("x", sparse);
    side.dumper.dump("x", tensor);
    EXPECT_EQ(side.counters().empty, 3u);
    EXPECT_EQ(side.counters().sent, 1u);
  } else {
    for (int i = 0; i < 3; ++i) side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, matrix_of(-1)));
    side.dumper.dump("x", 3.5);
    EXPECT_EQ(side.counters().empty, 4u);
  }
  const at::Tensor last = matrix_of(side.is_baseline ? 2 : -1);
  side.dumper.dump("x", last);
  EXPECT_TRUE(at::equal(last, matrix_of(2)));
}

// Which thread captures is the test's say.
thread_local bool is_capturing = false;

void capture(SideRank& side) {
  set_stream_capture_probe([]() noexcept { return is_capturing; });
  for (const bool sender_captures : {true, false}) {
    is_capturing = side.is_baseline == sender_captures;
    const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : -1);
    side.dumper.dump("x", tensor);
    const Tags tags{{"name", "x"}};
    const c10::IValue value(tensor);
    side.grafter.intercept({tags, value, nullptr, 0});  // with the value, past the Dumper
    is_capturing = false;
    EXPECT_TRUE(at::equal(tensor, matrix_of(side.is_baseline ? 1 : -1)));
  }
  EXPECT_EQ(side.counters().empty, side.is_baseline ? 2u : 4u);
  const at::Tensor next = matrix_of(side.is_baseline ? 2 : -1);
  side.dumper.dump("x", next);
  EXPECT_TRUE(at::equal(next, matrix_of(2)));
}

void expanded_target(SideRank& side) {
  const at::Tensor storage = at::zeros({4});
  const at::Tensor expanded = at::zeros({1, 3}).expand({2, 3});
  const at::Tensor window = storage.as_strided({3, 2}, {1, 1});
  side.dumper.dump("x", side.is_baseline ? matrix_of(1) : expanded);
  side.dumper.dump("x", side.is_baseline ? at::ones({3, 2}) : window);
  if (!side.is_baseline) {
    EXPECT_EQ(side.counters().empty, 2u);
  }
  EXPECT_TRUE(at::equal(expanded, at::zeros({2, 3})));
  EXPECT_TRUE(at::equal(storage, at::zeros({4})));
}

void both_filters(SideRank& side) {
  const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : 2);
  side.dumper.dump("x_both", tensor);
  EXPECT_TRUE(at::equal(tensor, matrix_of(side.is_baseline ? 1 : 2)));
  EXPECT_EQ(side.counters().ambiguous, 1u);
  side.dumper.dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, matrix_of(1)));
}

void other_world_size(SideRank& side) {
  // This thread's side says that it has three ranks.
  const ParticipantScope bound(std::make_shared<const Participant>(0, 3));
  const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : 2);
  side.dumper.dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, matrix_of(side.is_baseline ? 1 : 2)));
  const GraftState state = side.grafter.state();
  EXPECT_EQ(state.phase, GraftPhase::off);
  EXPECT_EQ(state.counters.off, 1u);
  EXPECT_THAT(state.cause, HasSubstr("_world_size is 1, and this side runs with 3 ranks"));
}

void skipped_call(SideRank& side) {
  const auto dump = [&](const std::string& name) {
    const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : -1);
    side.dumper.dump(name, tensor);
    return tensor;
  };
  // The target leaves xb out. Its xc is met by the baseline's xb; the baseline's xc by the target's next step.
  dump("xa");
  if (side.is_baseline) dump("xb");
  const at::Tensor third = dump("xc");
  side.dumper.step();
  const at::Tensor next = dump("xa");
  if (!side.is_baseline) {
    EXPECT_TRUE(at::equal(third, matrix_of(-1)));
    EXPECT_TRUE(at::equal(next, matrix_of(1)));
    EXPECT_EQ(side.counters().out_of_step, 1u);
    EXPECT_EQ(side.counters().grafted, 2u);
  } else {
    EXPECT_EQ(side.counters().out_of_step, 2u);
    EXPECT_EQ(side.counters().sent, 2u);
  }
}

void skipped_last_call(SideRank& side) {
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"xa", "xb", "xc"}) {
      if (!side.is_baseline && step == 1 && std::string(name) == "xc") continue;
      const at::Tensor tensor = matrix_of(side.is_baseline ? step : -1);
      side.dumper.dump(name, tensor);
      if (step != 1) {
        EXPECT_TRUE(at::equal(tensor, matrix_of(step))) << name;
      }
    }
    side.dumper.step();
  }
  EXPECT_EQ(side.counters().out_of_step, side.is_baseline ? 1u : 0u);
}

void told_apart_by_tags(SideRank& side) {
  for (int step = 0; step < 2; ++step) {
    for (int layer = 0; layer < 4; ++layer) {
      if (!side.is_baseline && step == 0 && layer == 2) continue;
      const at::Tensor tensor = matrix_of(side.is_baseline ? layer : -1);
      side.dumper.dump("x", tensor, {{"layer_id", layer}});
      // Its own layer's value or none, never its neighbour's.
      if (!side.is_baseline) {
        EXPECT_TRUE(at::equal(tensor, matrix_of(step == 0 && layer > 2 ? -1 : layer))) << tensor;
      }
    }
    side.dumper.step();
  }
  EXPECT_EQ(side.counters().out_of_step, side.is_baseline ? 2u : 1u);
}

void told_apart_by_number(SideRank& side) {
  // (y?, x#0): skipped; (x#0, x#1): the same name, and still another call.
  if (side.is_baseline) side.dumper.dump("xother", matrix_of(0));
  const at::Tensor first = matrix_of(side.is_baseline ? 1 : -1);
  side.dumper.dump("x", first);
  const at::Tensor second = matrix_of(side.is_baseline ? 2 : -1);
  if (!side.is_baseline) side.dumper.dump("x", second);
  side.dumper.step();
  const at::Tensor next = matrix_of(side.is_baseline ? 3 : -1);
  side.dumper.dump("x", next);
  EXPECT_TRUE(at::equal(next, matrix_of(3)));
  if (!side.is_baseline) {
    EXPECT_TRUE(at::equal(second, matrix_of(-1)));
  }
  EXPECT_EQ(side.counters().out_of_step, 2u);
}

// What a dump must be able to hold, and the same values on another side.
std::vector<std::pair<std::string, at::Tensor>> tensors_of_all_kinds() {
  std::vector<std::pair<std::string, at::Tensor>> all;
  const at::Tensor numbers = at::arange(6, at::kFloat).view({2, 3});
  for (const at::ScalarType dtype : {at::kFloat,
                                     at::kDouble,
                                     at::kBFloat16,
                                     at::kHalf,
                                     at::kFloat8_e4m3fn,
                                     at::kFloat8_e5m2,
                                     at::kFloat8_e4m3fnuz,
                                     at::kFloat8_e5m2fnuz,
                                     at::kFloat8_e8m0fnu,
                                     at::kComplexHalf,
                                     at::kChar,
                                     at::kShort,
                                     at::kInt,
                                     at::kLong,
                                     at::kByte,
                                     at::kUInt16,
                                     at::kUInt32,
                                     at::kUInt64,
                                     at::kBool,
                                     at::kComplexFloat,
                                     at::kComplexDouble}) {
    all.emplace_back(formatted("dtype {}", c10::toString(dtype)), numbers.to(dtype));
  }
  all.emplace_back("0-dim", at::scalar_tensor(3.5, at::kFloat));
  all.emplace_back("empty", at::empty({0, 3}, at::kFloat));
  all.emplace_back("non-contiguous", at::arange(6, at::kFloat).view({3, 2}).t());
  all.emplace_back("fp8 non-contiguous", at::arange(6, at::kFloat).to(at::kFloat8_e4m3fn).view({3, 2}).t());
  all.emplace_back("view", at::arange(20, at::kFloat).view({2, 10}).slice(1, 4, 7));
  all.emplace_back("conjugate", at::view_as_complex(at::arange(12, at::kFloat).view({2, 3, 2})).conj());
  all.emplace_back("leaf", numbers.clone().requires_grad_());
  return all;
}

void all_forms(SideRank& side) {
  for (const auto& [name, tensor] : tensors_of_all_kinds()) {
    const at::Tensor expected = tensor.detach().resolve_conj().clone();
    at::Tensor own = tensor;
    if (!side.is_baseline) {
      const at::NoGradGuard no_grad;
      own.view_as(own).zero_();
      if (own.numel() > 0) {
        ASSERT_FALSE(same_bits(own.detach().resolve_conj(), expected)) << name;
      }
    }
    side.dumper.dump("x", own, {{"kind", name}});
    EXPECT_TRUE(same_bits(own.detach().resolve_conj(), expected)) << name;
  }
  EXPECT_EQ(side.counters().failed + side.counters().refused + side.counters().empty, 0u);
}

void saved_for_backward(SideRank& side) {
  const at::Tensor leaf = at::full({3}, side.is_baseline ? 3.0 : 2.0).requires_grad_();
  const at::Tensor square = leaf * leaf;
  const at::Tensor root = square.sqrt();  // saves its result, which depends on nothing grafted
  side.dumper.dump("x", square);
  EXPECT_TRUE(at::equal(square.detach(), at::full({3}, 9.0)));
  EXPECT_NO_THROW((square * root.detach()).sum().backward());
  const at::Tensor parameter = at::zeros({2}).requires_grad_();
  side.dumper.dump("x", side.is_baseline ? at::ones({2}) : parameter);
  if (!side.is_baseline) {
    EXPECT_TRUE(at::equal(parameter.detach(), at::ones({2})));
  }
  EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf());
}

void unlike_senders(SideRank& side) {
  const at::Tensor tensor =
      side.is_baseline ? at::full({1 + side.rank, 2}, side.rank, at::kFloat) : at::full({3, 2}, -1, at::kFloat);
  side.dumper.dump("x", tensor);
  if (!side.is_baseline) {
    EXPECT_TRUE(at::equal(tensor, at::tensor({0.f, 0.f, 1.f, 1.f, 1.f, 1.f}).view({3, 2}))) << tensor;
  }
}

void scribbling_transform(SideRank& side) {
  const at::Tensor tensor = matrix_of(side.is_baseline ? 1 : -1);
  side.dumper.dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, matrix_of(side.is_baseline ? 1 : -1)));
  EXPECT_EQ(side.is_baseline ? side.counters().sent : side.counters().failed, 1u);
}

}  // namespace

const std::vector<GraftFact>& graft_facts() {
  static const std::vector<GraftFact> all{
      {"one_to_one", 1, 1, one_to_one},
      {"unequal_shapes", 1, 1, unequal_shapes},
      {"failing_transform", 1, 1, failing_transform, "fact_faulty"},
      {"extras_in_order", 3, 1, extras_in_order, "fact_extras"},
      {"extras_expanded", 1, 1, extras_expanded, "fact_scaled"},
      {"no_tensor", 1, 1, no_tensor},
      {"capture", 1, 1, capture},
      {"expanded_target", 1, 1, expanded_target},
      {"both_filters", 1, 1, both_filters, "", true, "name == 'x_both' or name == 'y'"},
      {"other_world_size", 1, 1, other_world_size},
      {"skipped_call", 2, 1, skipped_call, "select:0", false},
      {"skipped_last_call", 1, 1, skipped_last_call, "", false},
      {"told_apart_by_tags", 1, 1, told_apart_by_tags, "", false},
      {"told_apart_by_number", 1, 1, told_apart_by_number, "", false},
      {"all_forms", 1, 1, all_forms},
      {"saved_for_backward", 1, 1, saved_for_backward},
      {"unlike_senders", 2, 1, unlike_senders, "concat:0"},
      {"scribbling_transform", 1, 1, scribbling_transform, "fact_scribbler"},
  };
  return all;
}

const GraftFact& graft_fact(std::string_view name) {
  for (const GraftFact& fact : graft_facts()) {
    if (fact.name == name) return fact;
  }
  ADD_FAILURE() << "there is no fact " << name;
  return graft_facts().front();
}

FactTransforms::FactTransforms() {
  const auto add = [this](const char* name, GraftTransform transform) {
    all_.push_back(std::make_unique<ScopedTransform>(name, std::move(transform)));
  };
  add("fact_faulty", [](const GraftInput& input) -> at::Tensor {
    const std::string how = python_text(input.tags.find("how")->view());
    if (how == "throw") throw std::runtime_error("no idea");
    if (how == "odd") throw 7;
    if (how == "shape") return at::zeros({6});
    if (how == "dtype") return input.received.front().to(at::kDouble);
    if (how == "undefined") return at::Tensor();
    return input.received.front();
  });
  add("fact_extras", [](const GraftInput& input) {
    EXPECT_EQ(input.received_extras.at(0).toGenericDict().at("rank").toInt(), 0);
    EXPECT_TRUE(input.received_extras.at(1).isNone());
    EXPECT_EQ(input.received_extras.at(2).toGenericDict().at("rank").toInt(), 2);
    EXPECT_TRUE(at::equal(input.received_extras.at(2).toGenericDict().at("scale").toTensor(), at::ones({2})));
    return input.received.front() + 10;
  });
  add("fact_scaled", [](const GraftInput& input) {
    return input.received.front() * input.received_extras.front().toGenericDict().at("scale").toTensor()[4095];
  });
  add("fact_scribbler", [](const GraftInput& input) -> at::Tensor {
    input.target.fill_(99);
    throw std::runtime_error("after the fact");
  });
}

GraftConfig config_of(const GraftFact& fact, bool plain_wire) {
  GraftConfig config = graft_config(fact.baseline, fact.target);
  config.transform = fact.transform;
  config.plain_wire = plain_wire;
  if (fact.t2b_filter != nullptr) config.t2b_filter = fact.t2b_filter;
  return config;
}

}  // namespace dbg::test
