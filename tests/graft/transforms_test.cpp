// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The transforms by name, built in and registered, and the configuration that names them.
#include "graft/transforms.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dbg/error.h"
#include "graft/receive.h"
#include "graft/sides.h"

namespace dbg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Code>
std::string complaint_of(Code&& code) {
  try {
    code();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

const Tags kTags{{"name", "x"}};

GraftInput input_of(std::vector<at::Tensor> received, at::Tensor target, int rank = 0, int count = 1) {
  GraftInput input{kTags, std::move(received), {}, std::move(target)};
  input.receiver_rank = rank;
  input.receiver_count = count;
  input.received_extras.resize(input.received.size());
  input.received_places.resize(input.received.size());
  return input;
}

at::Tensor apply(const std::string& name, const GraftInput& input) {
  return graft::find_transform(name).apply(input);
}

TEST(TransformsTest, IdentityTakesTheSenderOfItsRank) {
  const auto input = input_of({at::zeros({2}), at::ones({2})}, at::zeros({2}), 1, 2);
  EXPECT_TRUE(at::equal(apply("", input), at::ones({2})));
  EXPECT_TRUE(at::equal(apply("identity", input), at::ones({2})));
}

TEST(TransformsTest, CastTakesTheTargetsDtype) {
  const auto input = input_of({at::ones({2})}, at::zeros({2}, at::kBFloat16));
  EXPECT_EQ(apply("cast", input).scalar_type(), at::kBFloat16);
}

TEST(TransformsTest, SelectTakesOne) {
  const auto input = input_of({at::zeros({2}), at::ones({2})}, at::zeros({2}));
  EXPECT_TRUE(at::equal(apply("select:1", input), at::ones({2})));
  EXPECT_THAT(complaint_of([&] { apply("select:2", input); }), HasSubstr("there are 2 senders"));
}

TEST(TransformsTest, AverageIsTakenInDouble) {
  // In float32 the sum would lose the ones.
  const auto input =
      input_of({at::full({1}, 16777216.0f), at::ones({1}), at::ones({1}), at::full({1}, -16777216.0f)}, at::zeros({1}));
  EXPECT_EQ(apply("average", input).item<float>(), 0.5f);
  EXPECT_THAT(complaint_of([] {
                apply("average", input_of({at::ones({1}), at::ones({2})}, at::zeros({1})));
              }),
              HasSubstr("sender 1 has [2]"));
  EXPECT_THAT(complaint_of([] { apply("average", input_of({at::ones({1}, at::kInt)}, at::zeros({1}))); }),
              HasSubstr("of int32"));
}

TEST(TransformsTest, ConcatJoinsAndSliceTakesApart) {
  const at::Tensor whole = at::arange(8, at::kFloat).view({2, 4});
  const auto joined = input_of({whole.narrow(1, 0, 2), whole.narrow(1, 2, 2)}, at::zeros({2, 4}));
  EXPECT_TRUE(at::equal(apply("concat:1", joined), whole));
  EXPECT_TRUE(at::equal(apply("concat:-1", joined), whole));
  EXPECT_THAT(complaint_of([&] { apply("concat:2", joined); }), HasSubstr("no such dimension"));
  const auto second = input_of({whole}, at::zeros({2, 2}), 1, 2);
  EXPECT_TRUE(at::equal(apply("slice:1", second), whole.narrow(1, 2, 2)));
  EXPECT_THAT(complaint_of([&] {
                apply("slice:1", input_of({whole}, at::zeros({2, 2}), 1, 3));
              }),
              HasSubstr("can't be shared evenly by 3"));
}

TEST(TransformsTest, DimsGoOverTheWholeTensor) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  GraftInput input = input_of({whole.narrow(1, 0, 3), whole.narrow(1, 3, 3)}, at::zeros({2, 6}), 1, 2);
  for (int rank = 0; rank < 2; ++rank) {
    input.received_places[static_cast<std::size_t>(rank)].dims = "s h[tp]";
    input.received_places[static_cast<std::size_t>(rank)].parallel.set("tp", rank, 2);
  }
  input.target_place.dims = "s[cp] h";
  input.target_place.parallel.set("cp", 1, 2);
  EXPECT_TRUE(at::equal(apply("dims", input), whole.narrow(0, 2, 2)));
  input.target_place.dims = "";
  EXPECT_THAT(complaint_of([&] { apply("dims", input); }), HasSubstr("this receiver says nothing of its axes"));
  input.received_places[1].dims = "s[tp] h";
  EXPECT_THAT(complaint_of([&] { apply("dims", input); }), HasSubstr("sender 1 says 's[tp] h'"));
}

TEST(TransformsTest, RegistrationsEnd) {
  EXPECT_THAT(complaint_of([] { graft::find_transform("mine"); }),
              AllOf(HasSubstr("no transform 'mine'"), HasSubstr("select:N")));
  GraftTransformHandle handle = register_graft_transform("mine", [](const GraftInput& input) { return input.target; });
  EXPECT_THAT(
      complaint_of([] { register_graft_transform("mine", [](const GraftInput& input) { return input.target; }); }),
      HasSubstr("registered already"));
  EXPECT_FALSE(graft::find_transform("mine").is_built_in);
  const GraftTransformHandle copy = handle;
  handle.remove();
  handle.remove();
  EXPECT_THAT(complaint_of([] { graft::find_transform("mine"); }), HasSubstr("no transform"));
  GraftTransformHandle second = register_graft_transform("mine", [](const GraftInput& input) { return input.target; });
  handle.remove();  // of the first registration
  EXPECT_NO_THROW(graft::find_transform("mine"));
  second.remove();
}

TEST(TransformsTest, ADifferenceThatWasNotTakenHasNoNumbers) {
  TensorDiff difference;
  difference.note = "elements of another kind";
  EXPECT_EQ(graft::difference_text(difference), "not compared: elements of another kind");
  difference.compared = true;
  difference.max_abs = 2;
  EXPECT_THAT(graft::difference_text(difference), HasSubstr("max_abs=2 "));
}

TEST(TransformsTest, NamesThatAreNoneOfOnesOwnAreRefused) {
  const auto keep = [](const GraftInput& input) { return input.target; };
  for (const char* name : {"", "identity", "a:b", "select"}) {
    EXPECT_THAT(complaint_of([&] { register_graft_transform(name, keep); }), HasSubstr("is no name for a transform"));
  }
  EXPECT_THAT(complaint_of([] { register_graft_transform("empty", {}); }), HasSubstr("is empty"));
}

TEST(GraftConfigTest, EachFaultIsNamedWithItsValue) {
  GraftConfig good = test::graft_config(2, 3);
  EXPECT_EQ(complaint_of([&] { good.validate(); }), "(none)");
  const auto with = [&](auto change) {
    GraftConfig config = good;
    change(config);
    return complaint_of([&] { Grafter grafter(config); });
  };
  EXPECT_THAT(with([](GraftConfig& c) { c.master_port = 0; }), HasSubstr("grafter_master_port: got '0'"));
  EXPECT_THAT(with([](GraftConfig& c) { c.master_port = 70000; }), HasSubstr("grafter_master_port: got '70000'"));
  EXPECT_THAT(with([](GraftConfig& c) { c.master_address = " "; }), HasSubstr("grafter_master_address: got ' '"));
  EXPECT_THAT(with([](GraftConfig& c) { c.baseline_world_size = 0; }),
              HasSubstr("grafter_baseline_world_size: got '0'"));
  EXPECT_THAT(with([](GraftConfig& c) { c.target_world_size = -1; }), HasSubstr("grafter_target_world_size: got '-1'"));
  EXPECT_THAT(with([](GraftConfig& c) { c.b2t_filter = c.t2b_filter = ""; }),
              HasSubstr("nothing would ever be grafted"));
  EXPECT_THAT(with([](GraftConfig& c) { c.b2t_filter = "name =="; }), HasSubstr("grafter_b2t_filter: 'name =='"));
  EXPECT_THAT(with([](GraftConfig& c) { c.backend = "nccl"; }),
              AllOf(HasSubstr("grafter_backend: got 'nccl'; it must be gloo"),
                    HasSubstr("set DUMPER_GRAFTER_BACKEND=gloo on both sides")));
  EXPECT_THAT(with([](GraftConfig& c) { c.group_name = "a/b"; }), HasSubstr("grafter_group_name"));
  EXPECT_THAT(with([](GraftConfig& c) { c.transform = "select:x"; }), HasSubstr("'select:x' is no transform of ours"));
  EXPECT_THAT(with([](GraftConfig& c) { c.transform = "selct:0"; }), HasSubstr("'selct:0' is none"));
  EXPECT_EQ(with([](GraftConfig& c) { c.transform = "registered_later"; }), "(none)");
  EXPECT_THAT(with([](GraftConfig& c) { c.baseline_world_size = 65537; }),
              HasSubstr("grafter_baseline_world_size: got '65537'"));
  EXPECT_THAT(with([](GraftConfig& c) { c.max_bytes = (std::int64_t{1} << 40) + 1; }), HasSubstr("grafter_max_mib"));
  EXPECT_THAT(with([](GraftConfig& c) { c.timeout = std::chrono::milliseconds(0); }), HasSubstr("grafter_timeout"));
  EXPECT_THAT(with([](GraftConfig& c) {
                c.master_port = 0;
                c.target_world_size = 0;
              }),
              AllOf(HasSubstr("2 faults"), HasSubstr("grafter_master_port"), HasSubstr("grafter_target_world_size")));
}

TEST(GraftConfigTest, ComesFromTheDumpersKnobs) {
  const DumperConfig knobs = DumperConfig::from_key_values(
      {"grafter_role=baseline", "grafter_b2t_filter=name == 'a'", "grafter_master_address=10.0.0.1",
       "grafter_master_port=29500", "grafter_baseline_world_size=2", "grafter_target_world_size=4",
       "grafter_group_name=g", "grafter_timeout=7", "grafter_transform=average", "grafter_max_mib=3", "strict=1"});
  const GraftConfig config = GraftConfig::from(knobs);
  EXPECT_EQ(config.role, GraftRole::baseline);
  EXPECT_EQ(config.b2t_filter, "name == 'a'");
  EXPECT_EQ(config.master_address, "10.0.0.1");
  EXPECT_EQ(config.master_port, 29500);
  EXPECT_EQ(config.baseline_world_size, 2);
  EXPECT_EQ(config.target_world_size, 4);
  EXPECT_EQ(config.group_name, "g");
  EXPECT_EQ(config.timeout, std::chrono::seconds(7));
  EXPECT_EQ(config.transform, "average");
  EXPECT_EQ(config.max_bytes, 3 << 20);
  EXPECT_TRUE(config.strict);
  EXPECT_THAT(complaint_of([] { GraftConfig::from(DumperConfig()); }), HasSubstr("grafter_role: got ''"));
}

}  // namespace
}  // namespace dbg
