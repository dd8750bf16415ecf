// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Pickles as bytes: what is kept when encoding fails, and which lengths are believed.
#include "distributed/object_bytes.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "distributed/gloo_halves.h"

namespace dbg::distributed {
namespace {

using testing::HasSubstr;

class ObjectBytesTest : public testing::Test {
 protected:
  std::unique_ptr<GroupHalf> half_ = test::make_gloo_half(c10::make_intrusive<c10d::HashStore>(), 0, 1);
};

TEST_F(ObjectBytesTest, AValueWithTensorsComesBack) {
  CollectiveCall call(*half_, "x");
  const EncodedObject encoded =
      encode_object(c10::ivalue::Tuple::create({at::arange(5).slice(0, 1, 5, 2), std::string("text"), 3}));
  EXPECT_FALSE(encoded.error);
  const c10::IValue value = decode_object(call, encoded.bytes, 0, 1 << 20);
  const auto& elements = value.toTupleRef().elements();
  ASSERT_EQ(elements.size(), 3U);
  EXPECT_TRUE(at::equal(elements[0].toTensor(), at::tensor({1, 3}, at::kLong)));
  EXPECT_EQ(elements[1].toStringRef(), "text");
  EXPECT_EQ(elements[2].toInt(), 3);
}

TEST_F(ObjectBytesTest, AFailureToEncodeIsKeptAndIsNoBytes) {
  const EncodedObject encoded = encode_with([]() -> std::string { throw std::runtime_error("words"); });
  EXPECT_EQ(encoded.bytes.numel(), 0);
  EXPECT_THROW(encoded.rethrow_if_failed(), std::runtime_error);
  CollectiveCall call(*half_, "x");
  try {
    decode_object(call, encoded.bytes, 0, 1 << 20);
    ADD_FAILURE() << "no error";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 10 could not pickle its object"));
  }
}

TEST_F(ObjectBytesTest, LengthsAreBelievedUpToTheLimit) {
  CollectiveCall call(*half_, "x");
  require_length(call, 0, 0, 10);
  require_length(call, 10, 0, 10);
  EXPECT_FALSE(half_->broken.is_set());
  EXPECT_THROW(require_length(call, 11, 0, 10), CommError);
  EXPECT_TRUE(half_->broken.is_set());
}

}  // namespace
}  // namespace dbg::distributed
