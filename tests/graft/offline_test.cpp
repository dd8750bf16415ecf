// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Grafts from a folder of records, through a Dumper, as one run and the next.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "dbg/error.h"
#include "graft/sides.h"
#include "support/log_capture.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using testing::HasSubstr;

at::Tensor square_of(double value) {
  return at::full({2, 2}, value, at::kFloat);
}

class OfflineGraftTest : public testing::Test {
 protected:
  // The baseline's run, on `ranks` ranks.
  void record(int ranks, const std::function<void(Dumper&, int)>& body) {
    for (int rank = 0; rank < ranks; ++rank) {
      const ParticipantScope bound(std::make_shared<const Participant>(rank, ranks));
      DumperConfig config;
      config.enable = true;
      config.dir = folder_.path().string();
      config.exp_name = "exp";
      config.enable_output_console = false;
      Dumper dumper(config);
      body(dumper, rank);
    }
  }

  GraftConfig config(const std::string& transform = "") const {
    GraftConfig made;
    made.role = GraftRole::file;
    made.folder = folder_.path().string();
    made.b2t_filter = "name.startswith('x')";
    made.transform = transform;
    return made;
  }

  test::TempFolder folder_;
  test::LogCapture log_;
};

TEST_F(OfflineGraftTest, TakesTheRecordOfNameStepAndTags) {
  record(1, [](Dumper& dumper, int) {
    for (int step = 0; step < 2; ++step) {
      dumper.dump("x", square_of(10 * step + 1), {{"layer_id", 1}});
      dumper.dump("x", square_of(10 * step + 2), {{"layer_id", 2}});
      dumper.step();
    }
  });
  Dumper dumper(test::silent_dumper());
  Grafter grafter(config());
  dumper.set_interceptor(grafter.interceptor());
  for (int step = 0; step < 2; ++step) {
    for (const int layer : {2, 1}) {
      const at::Tensor tensor = square_of(-1);
      dumper.dump("x", tensor, {{"layer_id", layer}});
      EXPECT_TRUE(at::equal(tensor, square_of(10 * step + layer)));
    }
    dumper.step();
  }
  EXPECT_EQ(grafter.state().counters.grafted, 4u);
  grafter.close();
  EXPECT_EQ(log_.count("all 4 records"), 1u);
}

TEST_F(OfflineGraftTest, EqualDumpsAreTakenInTheirOrder) {
  record(1, [](Dumper& dumper, int) {
    for (int i = 0; i < 3; ++i) dumper.dump("x", square_of(i));
  });
  Dumper dumper(test::silent_dumper());
  Grafter grafter(config());
  dumper.set_interceptor(grafter.interceptor());
  for (int i = 0; i < 3; ++i) {
    const at::Tensor tensor = square_of(-1);
    dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, square_of(i)));
  }
  const at::Tensor fourth = square_of(-1);
  dumper.dump("x", fourth);
  EXPECT_TRUE(at::equal(fourth, square_of(-1)));
  EXPECT_EQ(grafter.state().counters.missing, 1u);
  EXPECT_EQ(log_.count("no record number 4"), 1u);
}

TEST_F(OfflineGraftTest, AMissingRecordIsLoggedAndUnusedOnesAreReported) {
  record(1, [](Dumper& dumper, int) {
    dumper.dump("x", square_of(1));
    dumper.dump("xunused", square_of(2));
    dumper.dump("z", square_of(3));
  });
  Dumper dumper(test::silent_dumper());
  {
    Grafter grafter(config());
    dumper.set_interceptor(grafter.interceptor());
    const at::Tensor tensor = square_of(-1);
    dumper.dump("xother", tensor);
    EXPECT_TRUE(at::equal(tensor, square_of(-1)));
    dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, square_of(1)));
    EXPECT_EQ(grafter.state().counters.missing, 1u);
  }
  EXPECT_EQ(log_.count("2 of the 3 records"), 1u);
  EXPECT_EQ(log_.count("name=xunused"), 1u);
}

TEST_F(OfflineGraftTest, RanksTakeTheirOwnAndTransformsSeeAll) {
  record(2, [](Dumper& dumper, int rank) { dumper.dump("x", square_of(rank)); });
  for (int rank = 0; rank < 2; ++rank) {
    const ParticipantScope bound(std::make_shared<const Participant>(rank, 2));
    Dumper dumper(test::silent_dumper());
    Grafter grafter(config());
    dumper.set_interceptor(grafter.interceptor());
    const at::Tensor tensor = square_of(-1);
    dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, square_of(rank)));
  }
  Dumper dumper(test::silent_dumper());
  Grafter average(config("average"));
  dumper.set_interceptor(average.interceptor());
  const at::Tensor tensor = square_of(-1);
  dumper.dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, square_of(0.5)));
  Grafter identity(config());
  dumper.set_interceptor(identity.interceptor());
  dumper.reset();
  dumper.dump("x", tensor);  // rank 0 of 1 has a record of its own, whatever other ranks have
  EXPECT_TRUE(at::equal(tensor, square_of(0)));
  EXPECT_EQ(identity.state().counters.grafted, 1u);
}

// As with pipeline stages, each of which dumps its own layers.
TEST_F(OfflineGraftTest, ARankTakesItsOwnRecordAndNeverAnothers) {
  record(3, [](Dumper& dumper, int rank) {
    if (rank > 0) dumper.dump("x", square_of(rank));
  });
  Dumper dumper(test::silent_dumper());
  Grafter grafter(config());
  dumper.set_interceptor(grafter.interceptor());
  for (int rank = 0; rank < 3; ++rank) {
    const ParticipantScope bound(std::make_shared<const Participant>(rank, 3));
    const at::Tensor tensor = square_of(-1);
    dumper.dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, square_of(rank > 0 ? rank : -1))) << rank;
    const GraftState state = grafter.state();
    EXPECT_EQ(rank > 0 ? state.counters.grafted : state.counters.missing, 1u) << rank;
    EXPECT_EQ(state.phase, GraftPhase::grafting);
  }
  EXPECT_EQ(log_.count("of rank 0; ranks 1, 2 have one"), 1u);
}

TEST_F(OfflineGraftTest, ARecordWithATagThatTheRunUsesIsNotForADumpWithoutIt) {
  record(1, [](Dumper& dumper, int) {
    dumper.dump("x", square_of(1), {{"layer_id", 1}});
    dumper.dump("x", square_of(2));
    dumper.dump("x_engine", square_of(3), {{"pass", 7}});
  });
  Dumper dumper(test::silent_dumper());
  Grafter grafter(config());
  dumper.set_interceptor(grafter.interceptor());
  const auto grafted = [&dumper](const char* name, std::initializer_list<TagRef> tags) {
    const at::Tensor tensor = square_of(-1);
    dumper.dump(name, tensor, tags);
    return tensor[0][0].item<float>();
  };
  EXPECT_EQ(grafted("x", {}), 2);  // though the one with a tag comes first
  EXPECT_EQ(grafted("x", {{"layer_id", 1}}), 1);
  EXPECT_EQ(grafted("x", {}), -1);  // there is no second
  EXPECT_EQ(grafted("x_engine", {}), 3) << "a tag that this run does not know";
}

TEST_F(OfflineGraftTest, DimsOfTheRecordsSayHowShardsBecomeOne) {
  const at::Tensor whole = at::arange(8, at::kFloat).view({2, 4});
  struct Place : FrameworkPlugin {
    std::string name() const override { return "place"; }
    ParallelState collect_parallel_info() override {
      return ParallelState().set("tp", current_participant()->rank(), 2);
    }
  };
  record(2, [&](Dumper& dumper, int rank) {
    dumper.add_plugin(std::make_shared<Place>());
    DumpOptions options;
    options.dims = "b h[tp]";
    dumper.dump("x", at::Tensor(whole.narrow(1, 2 * rank, 2)), {}, options);
  });
  Dumper dumper(test::silent_dumper());
  Grafter grafter(config("dims"));
  dumper.set_interceptor(grafter.interceptor());
  const at::Tensor tensor = at::zeros({2, 4});
  dumper.dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, whole)) << tensor;
}

TEST_F(OfflineGraftTest, AFolderWithoutRecordsIsAnError) {
  try {
    Grafter grafter(config());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds no records"));
  }
  GraftConfig nowhere = config();
  nowhere.folder = (folder_ / "nowhere").string();
  EXPECT_THROW(Grafter{nowhere}, IoError);
}

}  // namespace
}  // namespace dbg
