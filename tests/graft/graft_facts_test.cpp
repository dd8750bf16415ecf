// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The facts of grafting with ranks as threads, once on dbg's own wire and once on the Python twin's.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/stream_capture.h"
#include "graft/sides.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

using test::graft_config;
using test::run_sides;
using test::same_bits;
using test::ScopedTransform;
using test::SideRank;
using testing::HasSubstr;

class GraftFactsTest : public testing::TestWithParam<bool> {
 protected:
  GraftConfig config(int baseline, int target, const std::string& transform = "") const {
    GraftConfig made = graft_config(baseline, target);
    made.plain_wire = GetParam();
    made.transform = transform;
    return made;
  }

  test::LogCapture log_;
};

INSTANTIATE_TEST_SUITE_P(Wires, GraftFactsTest, testing::Bool(),
                         [](const auto& wire) { return wire.param ? "Python" : "Framed"; });

at::Tensor filled(double value) {
  return at::full({2, 3}, value, at::kFloat);
}

TEST_P(GraftFactsTest, Fact1FourBaselineRanksMakeTwoTargets) {
  const ScopedTransform pairs("pairs", [](const GraftInput& input) {
    if (input.received.size() != 4) throw std::runtime_error("not four");
    for (std::size_t i = 0; i < 4; ++i) {
      if (input.received[i][0][0].item<double>() != 10.0 * static_cast<double>(i)) throw std::runtime_error("order");
    }
    const auto first = static_cast<std::size_t>(2 * input.receiver_rank);
    return (input.received[first] + input.received[first + 1]) / 2;
  });
  run_sides(config(4, 2, "pairs"), [](SideRank& side) {
    const at::Tensor tensor = filled(side.is_baseline ? 10.0 * side.rank : -1);
    side.dumper.dump("x", tensor);
    if (side.is_baseline) {
      EXPECT_TRUE(at::equal(tensor, filled(10.0 * side.rank)));
      EXPECT_EQ(side.counters().sent, 1u);
    } else {
      EXPECT_TRUE(at::equal(tensor, filled(side.rank == 0 ? 5 : 25))) << tensor;
      EXPECT_EQ(side.counters().grafted, 1u);
    }
  });
}

TEST_P(GraftFactsTest, Fact2TwoTargetsMakeFourBaselineRanks) {
  const ScopedTransform halves("halves", [](const GraftInput& input) {
    if (input.direction != GraftDirection::t2b || input.receiver_count != 4) throw std::runtime_error("direction");
    return input.received.at(static_cast<std::size_t>(input.receiver_rank / 2)) + input.receiver_rank;
  });
  run_sides(config(4, 2, "halves"), [](SideRank& side) {
    const at::Tensor tensor = filled(side.is_baseline ? -1 : 100.0 * (side.rank + 1));
    side.dumper.dump("y", tensor);
    if (!side.is_baseline) {
      EXPECT_TRUE(at::equal(tensor, filled(100.0 * (side.rank + 1))));
    } else {
      EXPECT_TRUE(at::equal(tensor, filled(100.0 * (side.rank / 2 + 1) + side.rank))) << tensor;
    }
  });
}

TEST_P(GraftFactsTest, Fact3OneToOneIsIdentity) {
  run_sides(config(1, 1), [](SideRank& side) {
    for (int i = 0; i < 5; ++i) {
      const at::Tensor tensor = filled(side.is_baseline ? i : -1);
      side.dumper.dump("x", tensor);
      EXPECT_TRUE(at::equal(tensor, filled(i)));
      const at::Tensor back = filled(side.is_baseline ? -1 : i);
      side.dumper.dump("y", back);
      EXPECT_TRUE(at::equal(back, filled(i)));
      const at::Tensor own = filled(side.is_baseline ? 1 : 2);
      side.dumper.dump("z", own);
      EXPECT_TRUE(at::equal(own, filled(side.is_baseline ? 1 : 2)));
    }
    EXPECT_EQ(side.counters().sent, 5u);
    EXPECT_EQ(side.counters().grafted, 5u);
    EXPECT_EQ(side.counters().bytes_sent, 5u * 24);
    EXPECT_EQ(side.counters().bytes_received, 5u * 24);
    EXPECT_EQ(side.grafter.state().peers, GetParam() ? "python" : "dbg");
  });
}

TEST_P(GraftFactsTest, Fact4UnequalCountsWithoutATransformAreAnErrorAndTheNextGraftWorks) {
  const ScopedTransform late("first_or_identity", [](const GraftInput& input) { return input.received.front(); });
  const auto body = [](double expected) {
    return [expected](SideRank& side) {
      for (int i = 0; i < 2; ++i) {
        const at::Tensor tensor = filled(side.is_baseline ? 1.0 + side.rank : -1);
        side.dumper.dump("x", tensor);
        if (!side.is_baseline) EXPECT_TRUE(at::equal(tensor, filled(expected))) << tensor;
      }
      if (side.is_baseline) EXPECT_EQ(side.counters().sent, 2u);
      if (!side.is_baseline && expected < 0) EXPECT_EQ(side.counters().failed, 2u);
      EXPECT_EQ(side.grafter.state().phase, GraftPhase::grafting);
    };
  };
  run_sides(config(2, 1), body(-1));
  EXPECT_EQ(log_.count("there are 2 senders and 1 receivers; register a transform"), 2u);
  run_sides(config(2, 1, "first_or_identity"), body(1));
}

TEST_P(GraftFactsTest, Fact4UnequalShapesWithoutATransformAreAnErrorAndTheNextGraftWorks) {
  run_sides(config(1, 1), [](SideRank& side) {
    const at::Tensor wrong = side.is_baseline ? at::ones({3, 2}) : at::zeros({2, 3});
    side.dumper.dump("x_wrong", wrong);
    if (!side.is_baseline) EXPECT_TRUE(at::equal(wrong, at::zeros({2, 3})));
    const at::Tensor right = filled(side.is_baseline ? 4 : -1);
    side.dumper.dump("x_right", right);
    EXPECT_TRUE(at::equal(right, filled(4)));
  });
  EXPECT_EQ(log_.count("sender 0 has [3, 2] where the target has [2, 3]"), 1u);
}

TEST_P(GraftFactsTest, Fact5AFailingTransformLeavesTheTargetAndTheNextGraftWorks) {
  const ScopedTransform faulty("faulty", [](const GraftInput& input) -> at::Tensor {
    const std::string how = python_text(input.tags.find("how")->view());
    if (how == "throw") throw std::runtime_error("no idea");
    if (how == "odd") throw 7;
    if (how == "shape") return at::zeros({6});
    if (how == "dtype") return input.received.front().to(at::kDouble);
    if (how == "undefined") return at::Tensor();
    return input.received.front();
  });
  run_sides(config(1, 1, "faulty"), [](SideRank& side) {
    for (const char* how : {"throw", "odd", "shape", "dtype", "undefined"}) {
      const at::Tensor before = at::tensor({1.0f, std::nanf("7"), -0.0f});
      const at::Tensor tensor = side.is_baseline ? at::ones({3}) : before.clone();
      side.dumper.dump("x", tensor, {{"how", how}});
      if (!side.is_baseline) EXPECT_TRUE(same_bits(tensor, before)) << how;
    }
    const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
    side.dumper.dump("x", tensor, {{"how", "well"}});
    EXPECT_TRUE(at::equal(tensor, filled(1)));
    if (!side.is_baseline) {
      EXPECT_EQ(side.counters().failed, 5u);
      EXPECT_EQ(side.counters().grafted, 1u);
    }
  });
  EXPECT_EQ(log_.count("no idea"), 1u);
  EXPECT_EQ(log_.count("the transform 'faulty' gave float32[6] where the target is float32[3]"), 1u);
  EXPECT_EQ(log_.count("the transform 'faulty' gave float64[3] where the target is float32[3]; 'cast' converts"), 1u);
  EXPECT_EQ(log_.count("an undefined tensor"), 1u);
}

TEST_P(GraftFactsTest, Fact6ExtrasArriveInOrderAndAreNoneWhereOmitted) {
  std::atomic<int> checked{0};
  const ScopedTransform extras("extras", [&](const GraftInput& input) {
    EXPECT_EQ(input.received_extras.at(0).toGenericDict().at("rank").toInt(), 0);
    EXPECT_TRUE(input.received_extras.at(1).isNone());
    EXPECT_EQ(input.received_extras.at(2).toGenericDict().at("rank").toInt(), 2);
    EXPECT_TRUE(at::equal(input.received_extras.at(2).toGenericDict().at("scale").toTensor(), at::ones({2})));
    ++checked;
    return input.received.front();
  });
  run_sides(config(3, 1, "extras"), [](SideRank& side) {
    const at::Tensor tensor = filled(1);
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    dict.insert("rank", static_cast<std::int64_t>(side.rank));
    dict.insert("scale", at::ones({2}));
    const c10::IValue extras(dict);
    DumpOptions options;
    if (side.is_baseline && side.rank != 1) options.grafter_extras = &extras;
    side.dumper.dump("x", tensor, {}, options);
    if (!side.is_baseline) EXPECT_EQ(side.counters().grafted, 1u);
  });
  EXPECT_EQ(checked, 1);
}

TEST_P(GraftFactsTest, Fact6ExtrasMayShowMoreElementsThanTheyHave) {
  const ScopedTransform scaled("scaled", [](const GraftInput& input) {
    return input.received.front() * input.received_extras.front().toGenericDict().at("scale").toTensor()[4095];
  });
  run_sides(config(1, 1, "scaled"), [](SideRank& side) {
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    dict.insert("scale", at::full({1}, 2.0f).expand({4096}));
    const c10::IValue extras(dict);
    DumpOptions options;
    options.grafter_extras = &extras;
    const at::Tensor tensor = filled(side.is_baseline ? 3 : -1);
    side.dumper.dump("x", tensor, {}, options);
    EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline ? 3 : 6))) << tensor;
  });
}

TEST_P(GraftFactsTest, Fact7AValueThatIsNoTensorOnOneSideKeepsNobodyWaiting) {
  run_sides(config(1, 1), [](SideRank& side) {
    const auto undefined = at::Tensor();
    const at::Tensor sparse = at::eye(2).to_sparse();
    const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
    if (side.is_baseline) {
      side.dumper.dump("x", "text");
      side.dumper.dump("x", undefined);
      side.dumper.dump("x", sparse);
      side.dumper.dump("x", tensor);
      EXPECT_EQ(side.counters().empty, 3u);
      EXPECT_EQ(side.counters().sent, 1u);
    } else {
      for (int i = 0; i < 3; ++i) side.dumper.dump("x", tensor);
      EXPECT_TRUE(at::equal(tensor, filled(-1)));
      side.dumper.dump("x", 3.5);
      EXPECT_EQ(side.counters().empty, 4u);
    }
    const at::Tensor last = filled(side.is_baseline ? 2 : -1);
    side.dumper.dump("x", last);
    EXPECT_TRUE(at::equal(last, filled(2)));
  });
}

// Which thread captures is the test's say.
thread_local bool is_capturing = false;

TEST_P(GraftFactsTest, Fact7ADumpDuringACaptureTakesPartWithNothing) {
  set_stream_capture_probe([]() noexcept { return is_capturing; });
  run_sides(config(1, 1), [](SideRank& side) {
    for (const bool sender_captures : {true, false}) {
      is_capturing = side.is_baseline == sender_captures;
      const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
      side.dumper.dump("x", tensor);
      const Tags tags{{"name", "x"}};
      const c10::IValue value(tensor);
      side.grafter.intercept({tags, value, nullptr, 0});  // with the value, past the Dumper
      is_capturing = false;
      EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline ? 1 : -1)));
    }
    EXPECT_EQ(side.counters().empty, side.is_baseline ? 2u : 4u);
    const at::Tensor next = filled(side.is_baseline ? 2 : -1);
    side.dumper.dump("x", next);
    EXPECT_TRUE(at::equal(next, filled(2)));
  });
  set_stream_capture_probe(nullptr);
  EXPECT_GE(log_.count("CUDA stream is being captured into a graph"), 2u);
}

TEST_P(GraftFactsTest, Fact7AnExpandedTargetIsRefusedByName) {
  run_sides(config(1, 1), [](SideRank& side) {
    const at::Tensor storage = at::zeros({4});
    const at::Tensor expanded = at::zeros({1, 3}).expand({2, 3});
    const at::Tensor window = storage.as_strided({3, 2}, {1, 1});
    side.dumper.dump("x", side.is_baseline ? filled(1) : expanded);
    side.dumper.dump("x", side.is_baseline ? at::ones({3, 2}) : window);
    if (!side.is_baseline) EXPECT_EQ(side.counters().empty, 2u);
    EXPECT_TRUE(at::equal(expanded, at::zeros({2, 3})));
    EXPECT_TRUE(at::equal(storage, at::zeros({4})));
  });
  EXPECT_GE(log_.count("whose elements share memory"), 2u);
}

TEST_P(GraftFactsTest, Fact8BothFiltersMatchingGraftsNothing) {
  GraftConfig both = config(1, 1);
  both.t2b_filter = "name == 'x_both' or name == 'y'";
  run_sides(both, [](SideRank& side) {
    const at::Tensor tensor = filled(side.is_baseline ? 1 : 2);
    side.dumper.dump("x_both", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline ? 1 : 2)));
    EXPECT_EQ(side.counters().ambiguous, 1u);
    side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(1)));
  });
  EXPECT_EQ(log_.count("both match; narrow one"), 2u);
}

TEST_P(GraftFactsTest, Fact9TheGroupIsLabelled) {
  run_sides(config(1, 1), [](SideRank& side) {
    side.dumper.dump("x", filled(1));
    EXPECT_EQ(side.grafter.state().label, "graft:cpu");
    // What tools see: read back from the group that torch's registry knows.
    EXPECT_EQ(c10d::resolve_process_group("graft")->getGroupDesc(), "graft:cpu");
  });
}

TEST_P(GraftFactsTest, Fact10AWorldOfAnotherSizeTurnsGraftingOff) {
  GraftConfig wrong = config(1, 1);
  run_sides(wrong, [](SideRank& side) {
    // This thread's side says that it has three ranks.
    const ParticipantScope bound(std::make_shared<const Participant>(0, 3));
    const at::Tensor tensor = filled(side.is_baseline ? 1 : 2);
    side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline ? 1 : 2)));
    const GraftState state = side.grafter.state();
    EXPECT_EQ(state.phase, GraftPhase::off);
    EXPECT_EQ(state.counters.off, 1u);
    EXPECT_THAT(state.cause, HasSubstr("_world_size is 1, and this side runs with 3 ranks"));
  });
  EXPECT_EQ(log_.count("GRAFTING IS OFF"), 2u);
}

TEST_P(GraftFactsTest, Fact17SendersOfDifferentShapesGoThroughATransform) {
  run_sides(config(2, 1, "concat:0"), [](SideRank& side) {
    const at::Tensor tensor =
        side.is_baseline ? at::full({1 + side.rank, 2}, side.rank, at::kFloat) : at::full({3, 2}, -1, at::kFloat);
    side.dumper.dump("x", tensor);
    if (!side.is_baseline) {
      EXPECT_TRUE(at::equal(tensor, at::tensor({0.f, 0.f, 1.f, 1.f, 1.f, 1.f}).view({3, 2}))) << tensor;
    }
  });
}

TEST_P(GraftFactsTest, Fact19ATransformThatWritesIntoTheTargetAndThrowsLeavesItAsItWas) {
  const ScopedTransform scribbler("scribbler", [](const GraftInput& input) -> at::Tensor {
    input.target.fill_(99);
    throw std::runtime_error("after the fact");
  });
  run_sides(config(1, 1, "scribbler"), [](SideRank& side) {
    const at::Tensor tensor = filled(side.is_baseline ? 1 : -1);
    side.dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(side.is_baseline ? 1 : -1)));
  });
}

// What a dump must be able to hold, and the same values on another side.
std::vector<std::pair<std::string, at::Tensor>> tensors_of_all_kinds() {
  std::vector<std::pair<std::string, at::Tensor>> all;
  const at::Tensor numbers = at::arange(6, at::kFloat).view({2, 3});
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kChar, at::kShort,
        at::kInt, at::kLong, at::kByte, at::kUInt16, at::kUInt32, at::kUInt64, at::kBool, at::kComplexFloat,
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

TEST_P(GraftFactsTest, Fact13AllDtypesAndFormsOfTensors) {
  run_sides(config(1, 1), [](SideRank& side) {
    for (const auto& [name, tensor] : tensors_of_all_kinds()) {
      const at::Tensor expected = tensor.detach().resolve_conj().clone();
      at::Tensor own = tensor;
      if (!side.is_baseline) {
        const at::NoGradGuard no_grad;
        own.view_as(own).zero_();
        if (own.numel() > 0) ASSERT_FALSE(same_bits(own.detach().resolve_conj(), expected)) << name;
      }
      side.dumper.dump("x", own, {{"kind", name}});
      EXPECT_TRUE(same_bits(own.detach().resolve_conj(), expected)) << name;
    }
    EXPECT_EQ(side.counters().failed + side.counters().refused + side.counters().empty, 0u);
  });
}

TEST_P(GraftFactsTest, Fact13AValueSavedForBackwardCanBeReplaced) {
  run_sides(config(1, 1), [](SideRank& side) {
    const at::Tensor leaf = at::full({3}, side.is_baseline ? 3.0 : 2.0).requires_grad_();
    const at::Tensor square = leaf * leaf;
    const at::Tensor root = square.sqrt();  // saves its result, which depends on nothing grafted
    side.dumper.dump("x", square);
    EXPECT_TRUE(at::equal(square.detach(), at::full({3}, 9.0)));
    EXPECT_NO_THROW((square * root.detach()).sum().backward());
    const at::Tensor parameter = at::zeros({2}).requires_grad_();
    side.dumper.dump("x", side.is_baseline ? at::ones({2}) : parameter);
    if (!side.is_baseline) EXPECT_TRUE(at::equal(parameter.detach(), at::ones({2})));
    EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf());
  });
}

}  // namespace
}  // namespace dbg
