// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes and reads control messages. What comes from the wire is not trusted.
#include "broadcast/header.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/formatted.h"
#include "broadcast/bucket_plan.h"
#include "codec/crc32.h"
#include "dbg/error.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie in memory");

namespace dbg::broadcast {
namespace {

constexpr std::string_view kMagic = "dbgwcast";
constexpr std::uint32_t kFlagLast = 1;
constexpr std::uint32_t kFlagDigests = 2;
constexpr std::size_t kChecksumAt = kHeaderBytes - 4;
constexpr std::size_t kMostDimensions = 64;
constexpr std::uint64_t kLeastMostInfoBytes = std::uint64_t{16} << 20;

template <class Number>
void put(HeaderBytes& bytes, std::size_t at, Number number) noexcept {
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

template <class Number>
Number get(const std::byte* bytes) noexcept {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

[[noreturn]] void refuse(std::string cause, std::string advice = "see whether all ranks run the same build") {
  CommFailure failure;
  failure.kind = CommErrorKind::handshake_mismatch;
  failure.operation = "sync";
  failure.cause = std::move(cause);
  failure.advice = std::move(advice);
  throw CommError(std::move(failure));
}

template <class Number>
void append(std::vector<std::byte>& out, Number number) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&number);
  out.insert(out.end(), bytes, bytes + sizeof number);
}

// Reads on within bounds.
class InfoReader {
 public:
  InfoReader(const std::byte* data, std::size_t size) : data_(data), size_(size) {}

  const std::byte* bytes(std::size_t count) {
    if (count > size_ - at_) {
      refuse(formatted("the weights' infos end at byte {}, where {} more are due", size_, count - (size_ - at_)));
    }
    const std::byte* found = data_ + at_;
    at_ += count;
    return found;
  }
  template <class Number>
  Number number() {
    return get<Number>(bytes(sizeof(Number)));
  }
  std::size_t left() const { return size_ - at_; }

 private:
  const std::byte* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

}  // namespace

HeaderBytes encode(const Header& header) noexcept {
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put(bytes, 8, kWireVersion);
  put(bytes, 12, static_cast<std::uint32_t>(header.kind));
  put(bytes, 16, header.generation);
  put(bytes, 24, header.bucket);
  put(bytes, 32, header.length);
  put(bytes, 40, header.info_bytes);
  put(bytes, 48, header.first_weight);
  put(bytes, 56, header.num_weights);
  put(bytes, 64, header.plan_hash);
  put(bytes, 72, header.payload_digest);
  put(bytes, 80, (header.is_last ? kFlagLast : 0U) | (header.has_digests ? kFlagDigests : 0U));
  put(bytes, 88, header.model_version);
  put(bytes, 96, header.total_bytes);
  put(bytes, 104, header.weights_digest);
  put(bytes, 112, header.info_digest);
  put(bytes, kChecksumAt, codec::crc32(bytes.data(), kChecksumAt));
  return bytes;
}

std::uint64_t most_info_bytes(std::uint64_t bucket_bytes) noexcept {
  return std::max(kLeastMostInfoBytes, std::min(bucket_bytes, std::numeric_limits<std::uint64_t>::max() / 16) * 16);
}

Header decode_header(const HeaderBytes& bytes, const HeaderLimits& limits) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    refuse("a message that is no header of a weight sync came where one was due",
           "see that nobody else uses the group, and whether all ranks run the same build");
  }
  if (const auto version = get<std::uint32_t>(bytes.data() + 8); version != kWireVersion) {
    refuse(formatted("the peer speaks version {} of the wire format, this rank version {}", version, kWireVersion));
  }
  const auto checksum = codec::crc32(bytes.data(), kChecksumAt);
  if (const auto said = get<std::uint32_t>(bytes.data() + kChecksumAt); said != checksum) {
    refuse(formatted("a header was damaged on the way: its checksum is {:08x} and says {:08x}", checksum, said),
           "look at the network, and at who else writes into this process's memory");
  }
  Header header;
  const auto kind = get<std::uint32_t>(bytes.data() + 12);
  if (kind != static_cast<std::uint32_t>(MessageKind::bucket) &&
      kind != static_cast<std::uint32_t>(MessageKind::commit)) {
    refuse(formatted("a header has the kind {}, which is neither a bucket (1) nor a commit record (2)", kind));
  }
  header.kind = static_cast<MessageKind>(kind);
  header.generation = get<std::uint64_t>(bytes.data() + 16);
  header.bucket = get<std::uint64_t>(bytes.data() + 24);
  header.length = get<std::uint64_t>(bytes.data() + 32);
  header.info_bytes = get<std::uint64_t>(bytes.data() + 40);
  header.first_weight = get<std::uint64_t>(bytes.data() + 48);
  header.num_weights = get<std::uint64_t>(bytes.data() + 56);
  header.plan_hash = get<std::uint64_t>(bytes.data() + 64);
  header.payload_digest = get<std::uint64_t>(bytes.data() + 72);
  const auto flags = get<std::uint32_t>(bytes.data() + 80);
  header.is_last = (flags & kFlagLast) != 0;
  header.has_digests = (flags & kFlagDigests) != 0;
  header.model_version = get<std::int64_t>(bytes.data() + 88);
  header.total_bytes = get<std::uint64_t>(bytes.data() + 96);
  header.weights_digest = get<std::uint64_t>(bytes.data() + 104);
  header.info_digest = get<std::uint32_t>(bytes.data() + 112);
  if ((flags & ~(kFlagLast | kFlagDigests)) != 0) {
    refuse(formatted("a header has the flags {:#x}, and {:#x} are known", flags, kFlagLast | kFlagDigests));
  }
  if (get<std::uint32_t>(bytes.data() + 84) != 0 || get<std::uint64_t>(bytes.data() + 116) != 0) {
    refuse("a header says something where this version of the format says nothing");
  }
  const bool is_commit = header.kind == MessageKind::commit;
  if (header.is_last != is_commit) {
    refuse(formatted("a {} says that it is {} message of the stream", is_commit ? "commit record" : "bucket",
                     header.is_last ? "the last" : "not the last"));
  }
  if (is_commit && (header.length > 0 || header.info_bytes > 0)) {
    refuse(formatted("a commit record announces {} bytes and {} bytes of infos, and it has none", header.length,
                     header.info_bytes));
  }
  if (header.generation != limits.generation) {
    refuse(formatted("a message of sync generation {} came in sync generation {}: a peer is still in another sync",
                     header.generation, limits.generation),
           "let every rank finish or fail a sync before the next one");
  }
  if (header.length > limits.bucket_bytes) {
    refuse(formatted("bucket {} announces {} bytes, and a bucket of this rank has {}", header.bucket, header.length,
                     limits.bucket_bytes));
  }
  if (header.info_bytes > most_info_bytes(limits.bucket_bytes)) {
    refuse(formatted("bucket {} announces {} bytes of infos, above the {} that are allowed", header.bucket,
                     header.info_bytes, most_info_bytes(limits.bucket_bytes)));
  }
  return header;
}

std::vector<std::byte> encode_infos(const std::vector<WeightInfo>& infos) {
  std::vector<std::byte> out;
  for (const WeightInfo& info : infos) {
    append(out, static_cast<std::uint32_t>(info.name.size()));
    const auto* name = reinterpret_cast<const std::byte*>(info.name.data());
    out.insert(out.end(), name, name + info.name.size());
    append(out, static_cast<std::uint16_t>(info.dtype));
    append(out, static_cast<std::uint16_t>(info.shape.size()));
    for (const std::int64_t size : info.shape) append(out, size);
  }
  return out;
}

std::vector<WeightInfo> decode_infos(const std::byte* data, std::size_t size, std::uint64_t num_weights) {
  std::vector<WeightInfo> infos;
  InfoReader reader(data, size);
  while (reader.left() > 0) {
    if (infos.size() == num_weights) {
      refuse(formatted("{} bytes follow the infos of the {} weights that were announced", reader.left(), num_weights));
    }
    WeightInfo info;
    const auto name_bytes = reader.number<std::uint32_t>();
    const auto* name = reinterpret_cast<const char*>(reader.bytes(name_bytes));
    info.name.assign(name, name_bytes);
    const auto dtype = reader.number<std::uint16_t>();
    if (dtype >= static_cast<std::uint16_t>(at::ScalarType::NumOptions)) {
      refuse(formatted("the weight '{}' comes with dtype number {}, which this torch does not have", info.name, dtype));
    }
    info.dtype = static_cast<at::ScalarType>(dtype);
    const auto dimensions = reader.number<std::uint16_t>();
    if (dimensions > kMostDimensions) {
      refuse(formatted("the weight '{}' comes with {} dimensions, above the {} that are allowed", info.name, dimensions,
                       kMostDimensions));
    }
    for (int i = 0; i < dimensions; ++i) info.shape.push_back(reader.number<std::int64_t>());
    infos.push_back(std::move(info));
  }
  if (infos.size() != num_weights) {
    refuse(formatted("there are infos of {} weights, and {} were announced", infos.size(), num_weights));
  }
  return infos;
}

std::vector<WeightInfo> infos_of(const Header& header, const std::vector<std::byte>& infos) {
  const auto digest = codec::crc32(infos.data(), infos.size());
  if (digest != header.info_digest) {
    refuse(formatted("the infos of bucket {} were damaged on the way: their digest is {:08x}, and {:08x} was sent",
                     header.bucket, digest, header.info_digest),
           "look at the network and the memory of this machine; nothing was committed");
  }
  return decode_infos(infos.data(), infos.size(), header.num_weights);
}

std::uint64_t digest_of(const void* data, std::size_t size, std::uint64_t previous) noexcept {
  return codec::crc32(data, size, static_cast<std::uint32_t>(previous));
}

std::optional<std::string> difference_of(const Header& root, const Header& own) {
  const bool root_ends = root.kind == MessageKind::commit;
  const bool own_ends = own.kind == MessageKind::commit;
  if (root_ends != own_ends) {
    const Header& ended = root_ends ? root : own;
    const Header& goes_on = root_ends ? own : root;
    return formatted("the stream of {} ends after {} weights, where that of {} has a bucket {} with weight {} in it",
                     root_ends ? "the root" : "this rank", ended.num_weights, root_ends ? "this rank" : "the root",
                     goes_on.bucket, goes_on.first_weight);
  }
  struct Field {
    const char* name;
    std::uint64_t root;
    std::uint64_t own;
  };
  for (const Field& field :
       {Field{"bucket", root.bucket, own.bucket}, Field{"first weight", root.first_weight, own.first_weight},
        Field{"number of weights", root.num_weights, own.num_weights}, Field{"length", root.length, own.length},
        Field{"total bytes", root.total_bytes, own.total_bytes}, Field{"plan hash", root.plan_hash, own.plan_hash},
        Field{"model's version", static_cast<std::uint64_t>(root.model_version),
              static_cast<std::uint64_t>(own.model_version)},
        Field{"use of digests", root.has_digests ? 1U : 0U, own.has_digests ? 1U : 0U}}) {
    if (field.root == field.own) continue;
    return formatted("bucket {}: the {} is {} on the root and {} on this rank", root.bucket, field.name, field.root,
                     field.own);
  }
  return std::nullopt;
}

}  // namespace dbg::broadcast
