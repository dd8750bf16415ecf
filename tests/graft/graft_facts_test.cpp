// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The facts of grafting with ranks as threads, once on dbg's own wire and once on the Python twin's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dump/stream_capture.h"
#include "graft/graft_facts.h"
#include "graft/sides.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

using test::matrix_of;
using test::run_sides;
using test::ScopedTransform;
using test::SideRank;

class GraftFactsTest : public test::BothWiresTest {
 protected:
  /// Both sides do the fact of that name.
  static void run(const char* name) {
    const test::FactTransforms transforms;
    run_sides(test::config_of(test::graft_fact(name), GetParam()), test::graft_fact(name).body);
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, GraftFactsTest, testing::Bool(),
                         [](const auto& wire) { return wire.param ? "Python" : "Framed"; });

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
    const at::Tensor tensor = matrix_of(side.is_baseline ? 10.0 * side.rank : -1);
    side.dumper.dump("x", tensor);
    if (side.is_baseline) {
      EXPECT_TRUE(at::equal(tensor, matrix_of(10.0 * side.rank)));
      EXPECT_EQ(side.counters().sent, 1u);
    } else {
      EXPECT_TRUE(at::equal(tensor, matrix_of(side.rank == 0 ? 5 : 25))) << tensor;
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
    const at::Tensor tensor = matrix_of(side.is_baseline ? -1 : 100.0 * (side.rank + 1));
    side.dumper.dump("y", tensor);
    if (!side.is_baseline) {
      EXPECT_TRUE(at::equal(tensor, matrix_of(100.0 * (side.rank + 1))));
    } else {
      EXPECT_TRUE(at::equal(tensor, matrix_of(100.0 * (side.rank / 2 + 1) + side.rank))) << tensor;
    }
  });
}

TEST_P(GraftFactsTest, Fact3OneToOneIsIdentity) {
  run("one_to_one");
}

TEST_P(GraftFactsTest, Fact4UnequalCountsWithoutATransformAreAnErrorAndTheNextGraftWorks) {
  const ScopedTransform late("first_or_identity", [](const GraftInput& input) { return input.received.front(); });
  const auto body = [](double expected) {
    return [expected](SideRank& side) {
      for (int i = 0; i < 2; ++i) {
        const at::Tensor tensor = matrix_of(side.is_baseline ? 1.0 + side.rank : -1);
        side.dumper.dump("x", tensor);
        if (!side.is_baseline) {
          EXPECT_TRUE(at::equal(tensor, matrix_of(expected))) << tensor;
        }
      }
      if (side.is_baseline) {
        EXPECT_EQ(side.counters().sent, 2u);
      }
      if (!side.is_baseline && expected < 0) {
        EXPECT_EQ(side.counters().failed, 2u);
      }
      EXPECT_EQ(side.grafter.state().phase, GraftPhase::grafting);
    };
  };
  run_sides(config(2, 1), body(-1));
  EXPECT_EQ(log_.count("there are 2 senders and 1 receivers; register a transform"), 2u);
  run_sides(config(2, 1, "first_or_identity"), body(1));
}

TEST_P(GraftFactsTest, Fact4UnequalShapesWithoutATransformAreAnErrorAndTheNextGraftWorks) {
  run("unequal_shapes");
  EXPECT_EQ(log_.count("sender 0 has [3, 2] where the target has [2, 3]"), 1u);
}

TEST_P(GraftFactsTest, Fact5AFailingTransformLeavesTheTargetAndTheNextGraftWorks) {
  run("failing_transform");
  EXPECT_EQ(log_.count("no idea"), 1u);
  EXPECT_EQ(log_.count("the transform 'fact_faulty' gave float32[6] where the target is float32[3]"), 1u);
  EXPECT_EQ(log_.count("the transform 'fact_faulty' gave float64[3] where the target is float32[3]; 'cast' converts"),
            1u);
  EXPECT_EQ(log_.count("an undefined tensor"), 1u);
}

TEST_P(GraftFactsTest, Fact6ExtrasArriveInOrderAndAreNoneWhereOmitted) {
  run("extras_in_order");
}

TEST_P(GraftFactsTest, Fact6ExtrasMayShowMoreElementsThanTheyHave) {
  run("extras_expanded");
}

TEST_P(GraftFactsTest, Fact7AValueThatIsNoTensorOnOneSideKeepsNobodyWaiting) {
  run("no_tensor");
}

TEST_P(GraftFactsTest, Fact7ADumpDuringACaptureTakesPartWithNothing) {
  run("capture");
  set_stream_capture_probe(nullptr);
  EXPECT_GE(log_.count("CUDA stream is being captured into a graph"), 2u);
}

TEST_P(GraftFactsTest, Fact7AnExpandedTargetIsRefusedByName) {
  run("expanded_target");
  EXPECT_GE(log_.count("whose elements share memory"), 2u);
}

TEST_P(GraftFactsTest, Fact8BothFiltersMatchingGraftsNothing) {
  run("both_filters");
  EXPECT_EQ(log_.count("both match; narrow one"), 2u);
}

TEST_P(GraftFactsTest, Fact9TheGroupIsLabelled) {
  run_sides(config(1, 1), [](SideRank& side) {
    side.dumper.dump("x", matrix_of(1));
    EXPECT_EQ(side.grafter.state().label, "graft:cpu");
    // What tools see: read back from the group that torch's registry knows.
    EXPECT_EQ(c10d::resolve_process_group("graft")->getGroupDesc(), "graft:cpu");
  });
}

TEST_P(GraftFactsTest, Fact10AWorldOfAnotherSizeTurnsGraftingOff) {
  run("other_world_size");
  EXPECT_EQ(log_.count("GRAFTING IS OFF"), 2u);
}

TEST_P(GraftFactsTest, Fact17SendersOfDifferentShapesGoThroughATransform) {
  run("unlike_senders");
}

TEST_P(GraftFactsTest, Fact19ATransformThatWritesIntoTheTargetAndThrowsLeavesItAsItWas) {
  run("scribbling_transform");
}

TEST_P(GraftFactsTest, Fact13AllDtypesAndFormsOfTensors) {
  run("all_forms");
}

TEST_P(GraftFactsTest, Fact13AValueSavedForBackwardCanBeReplaced) {
  run("saved_for_backward");
}

}  // namespace
}  // namespace dbg
