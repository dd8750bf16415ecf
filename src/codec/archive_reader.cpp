// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The formats around a pickle: where its storages' bytes are.
#include "codec/archive_reader.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "base/formatted.h"
#include "base/windowed_storage.h"
#include "codec/byte_source.h"
#include "codec/crc32.h"
#include "codec/pickle_reader.h"
#include "codec/zip_directory.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes are read as they stand in the file");

namespace dbg::codec {
namespace {

/// What every nested read shares.
struct Session {
  const ReadLimits& limits;
  ReadBudget& budget;
  std::vector<Refusal>* refusals;
  /// The file, where storages may go on reading it; else nullptr.
  std::shared_ptr<const ByteSource> file = nullptr;
};

PickledValue read_archive(const ByteSource& source, Session& session);

void spend_storage(const ByteSource& source, std::uint64_t offset, std::uint64_t size, Session& session) {
  if (session.budget.tensor_bytes < size) {
    source.fail(offset, session.budget.tensor_bytes_spent("a storage", size));
  }
  session.budget.tensor_bytes -= size;
}

/// Memory with the `size` bytes at `offset` of the source.
c10::Storage read_storage(const ByteSource& source, std::uint64_t offset, std::uint64_t size, Session& session) {
  spend_storage(source, offset, size, session);
  try {
    c10::Storage storage(c10::Storage::use_byte_size_t(), size, c10::GetCPUAllocator(), /*resizable=*/true);
    source.read(offset, storage.mutable_data(), size);
    return storage;
  } catch (const c10::Error&) {
    source.fail(offset, formatted("no memory for a storage of {} bytes", size));
  }
}

/// Memory that reads the entry's bytes from the file when they are wanted, and checks them on the first way through.
c10::Storage windowed_storage(const std::string& name, const ZipEntry& entry, Session& session) {
  spend_storage(*session.file, entry.offset, entry.size, session);
  return base::WindowedStorage::make(entry.size, [file = session.file, entry, name, checked = std::uint64_t{0},
                                                  checksum = std::uint32_t{0}](std::uint64_t offset, void* to,
                                                                               std::size_t count) mutable {
    file->read(entry.offset + offset, to, count);
    if (entry.checksum == 0 || offset > checked || offset + count <= checked) return;
    const std::uint64_t known = checked - offset;
    checksum = crc32(static_cast<const std::byte*>(to) + known, count - known, checksum);
    checked = offset + count;
    if (checked == entry.size && checksum != entry.checksum) {
      file->fail(entry.offset, formatted("the {} bytes of zip entry '{}' do not fit their checksum: they were damaged",
                                         entry.size, printable(name)));
    }
  });
}

/// Reverses each run of `width` bytes.
void swap_bytes(const c10::Storage& storage, std::size_t width) {
  auto* bytes = static_cast<unsigned char*>(storage.mutable_data());
  for (std::size_t i = 0; i + width <= storage.nbytes(); i += width) std::reverse(bytes + i, bytes + i + width);
}

std::size_t swap_width_of(c10::ScalarType dtype) {
  const std::size_t size = c10::elementSize(dtype);
  return c10::isComplexType(dtype) ? size / 2 : size;
}

class Environment : public PickleEnvironment {
 public:
  Environment(const ByteSource& source, Session& session) : source_(source), session_(session) {}

  PickledValue stream(std::string_view bytes) final {
    const auto inner = ByteSource::memory("pickled stream", bytes.data(), bytes.size());
    // Its offsets are not the file's.
    Session session{session_.limits, session_.budget, session_.refusals};
    return read_archive(inner, session);
  }

 protected:
  const ByteSource& source_;
  Session& session_;
};

class ZipEnvironment final : public Environment {
 public:
  ZipEnvironment(const ByteSource& source, const ZipDirectory& directory, bool is_big_endian, Session& session)
      : Environment(source, session), directory_(directory), is_big_endian_(is_big_endian) {}

  c10::Storage storage(std::string_view key, std::uint64_t size_bytes, c10::ScalarType dtype) override {
    // Bytes that are read as elements of two widths are two storages once they have to be turned.
    const std::size_t width = is_big_endian_ ? swap_width_of(dtype) : 1;
    auto found = storages_.find({std::string(key), width});
    if (found == storages_.end()) {
      const std::string name = "data/" + std::string(key);
      const ZipEntry entry = directory_.entry(name);
      const bool in_windows =
          session_.file != nullptr && width == 1 && entry.size > session_.limits.windowed_above_bytes;
      c10::Storage storage = in_windows ? windowed_storage(name, entry, session_)
                                        : read_storage(source_, entry.offset, entry.size, session_);
      if (!in_windows) directory_.check(name, entry, storage.data());
      if (width > 1) swap_bytes(storage, width);
      found = storages_.emplace(std::pair(std::string(key), width), std::move(storage)).first;
    }
    if (found->second.nbytes() < size_bytes) {
      source_.fail(directory_.entry("data/" + std::string(key)).offset,
                   formatted("storage '{}' has {} bytes and the pickle counts on {}", printable(key),
                             found->second.nbytes(), size_bytes));
    }
    return found->second;
  }

 private:
  const ZipDirectory& directory_;
  bool is_big_endian_;
  std::map<std::pair<std::string, std::size_t>, c10::Storage> storages_;
};

/// The older format: all storages after the pickle, each behind its number of elements. torch writes it little-endian
/// on every machine.
class StreamEnvironment final : public Environment {
 public:
  struct Place {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  StreamEnvironment(const ByteSource& source, std::map<std::string, Place, std::less<>>&& places, Session& session)
      : Environment(source, session), places_(std::move(places)) {}

  c10::Storage storage(std::string_view key, std::uint64_t size_bytes, c10::ScalarType) override {
    const auto place = places_.find(key);
    if (place == places_.end()) {
      source_.fail(source_.size(), formatted("storage '{}' is not in the stream", printable(key)));
    }
    if (place->second.size < size_bytes) {
      source_.fail(place->second.offset, formatted("storage '{}' has {} bytes and the pickle counts on {}",
                                                   printable(key), place->second.size, size_bytes));
    }
    auto found = storages_.find(key);
    if (found == storages_.end()) {
      c10::Storage storage = read_storage(source_, place->second.offset, place->second.size, session_);
      found = storages_.emplace(std::string(key), std::move(storage)).first;
    }
    return found->second;
  }

 private:
  std::map<std::string, Place, std::less<>> places_;
  std::map<std::string, c10::Storage, std::less<>> storages_;
};

/// A pickle with nothing around it.
class BareEnvironment final : public Environment {
 public:
  using Environment::Environment;

  c10::Storage storage(std::string_view key, std::uint64_t, c10::ScalarType) override {
    source_.fail(0, formatted("storage '{}' is not in a pickle that stands alone", printable(key)));
  }
};

PickledValue read_zip(const ByteSource& source, Session& session) {
  const ZipDirectory directory(source, session.budget.items);
  session.budget.items -= directory.size();
  if (directory.contains("constants.pkl")) {
    source.fail(0, "a TorchScript archive; only what torch.save writes of plain values is read");
  }
  bool is_big_endian = false;
  if (directory.contains("byteorder")) {
    const ZipEntry entry = directory.entry("byteorder");
    std::string order(std::min<std::uint64_t>(entry.size, 16), '\0');
    source.read(entry.offset, order.data(), order.size());
    if (order != "little" && order != "big") {
      source.fail(entry.offset, formatted("unknown byte order '{}'", printable(order)));
    }
    is_big_endian = order == "big";
  }
  const ZipEntry pickle = directory.entry("data.pkl");
  PickleBytes bytes(source, pickle.offset, pickle.size, session.limits.max_pickle_bytes);
  bytes.require(0, pickle.size);
  directory.check("data.pkl", pickle, bytes.view(0, pickle.size).data());
  const PickleGraph graph = read_pickle_graph(std::move(bytes), session.budget);
  ZipEnvironment environment(source, directory, is_big_endian, session);
  return make_pickled_value(graph, environment, session.limits, session.budget, session.refusals);
}

/// The bytes of the integer 0x1950a86a20f9469cfc6c, by which torch.save's older streams begin.
constexpr std::array<unsigned char, 10> stream_magic{0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
constexpr std::int64_t stream_version = 1001;

class StreamReader {
 public:
  StreamReader(const ByteSource& source, Session& session) : source_(source), session_(session) {}

  PickledValue read() {
    {
      const PickleGraph magic = next_pickle();
      const bool is_ours =
          magic.root.kind == PickleKind::big_integer &&
          magic.text_of(magic.spans[magic.root.index]) ==
              std::string_view(reinterpret_cast<const char*>(stream_magic.data()), stream_magic.size());
      if (!is_ours) source_.fail(0, "a pickle that is no torch.save stream");
    }
    const PickleRef version = next_pickle().root;
    if (version.kind != PickleKind::integer || version.integer != stream_version) {
      source_.fail(position_, formatted("a torch.save stream of another version than {}", stream_version));
    }
    next_pickle();  // of the machine that wrote it; nothing depends on it
    const PickleGraph graph = next_pickle();
    StreamEnvironment environment(source_, find_storages(graph), session_);
    return make_pickled_value(graph, environment, session_.limits, session_.budget, session_.refusals);
  }

 private:
  PickleGraph next_pickle() {
    PickleGraph graph = read_pickle_graph(
        PickleBytes(source_, position_, source_.size() - position_, session_.limits.max_pickle_bytes), session_.budget);
    position_ += graph.size_bytes;
    return graph;
  }

  std::map<std::string, StreamEnvironment::Place, std::less<>> find_storages(const PickleGraph& graph) {
    std::map<std::string_view, std::uint64_t> element_bytes;
    for (const PickleStorage& storage : graph.storages) {
      element_bytes.emplace(graph.text_of(storage.key), storage.dtype == c10::ScalarType::Undefined
                                                            ? std::size_t{1}
                                                            : c10::elementSize(storage.dtype));
    }
    const std::uint64_t keys_offset = position_;
    const PickleGraph keys = next_pickle();
    if (keys.root.kind != PickleKind::list)
      source_.fail(keys_offset, "a torch.save stream without its list of storages");
    std::map<std::string, StreamEnvironment::Place, std::less<>> places;
    for (const PickleRef ref : keys.sequences[keys.root.index]) {
      if (ref.kind != PickleKind::text) source_.fail(keys_offset, "a storage whose key is no text");
      const std::string key(keys.text_of(keys.spans[ref.index]));
      const auto size = element_bytes.find(key);
      if (size == element_bytes.end()) {
        source_.fail(keys_offset, formatted("storage '{}' is in the stream and not in its pickle", printable(key)));
      }
      std::int64_t elements = 0;
      source_.read(position_, &elements, sizeof(elements));
      position_ += sizeof(elements);
      const std::uint64_t left = source_.size() - position_;
      if (elements < 0 || static_cast<std::uint64_t>(elements) > left / size->second) {
        source_.fail(position_ - sizeof(elements),
                     formatted("storage '{}' has {} elements of {} bytes where {} bytes are left", printable(key),
                               elements, size->second, left));
      }
      const std::uint64_t size_bytes = static_cast<std::uint64_t>(elements) * size->second;
      if (!places.emplace(key, StreamEnvironment::Place{position_, size_bytes}).second) {
        source_.fail(position_, formatted("storage '{}' stands there twice", printable(key)));
      }
      position_ += size_bytes;
    }
    return places;
  }

  const ByteSource& source_;
  Session& session_;
  std::uint64_t position_ = 0;
};

PickledValue read_archive(const ByteSource& source, Session& session) {
  std::array<char, 4> start{};
  if (source.size() < start.size()) {
    source.fail(source.size(), "too short for a zip archive or a torch.save stream: it is empty or was cut");
  }
  source.read(0, start.data(), start.size());
  if (std::memcmp(start.data(), "PK\x03\x04", start.size()) == 0) return read_zip(source, session);
  if (start[0] != '\x80') source.fail(0, "neither a zip archive nor a pickle: torch.save did not write it");
  return StreamReader(source, session).read();
}

c10::IValue value_of(const ByteSource& source, PickledValue&& read) {
  auto* value = std::get_if<c10::IValue>(&read);
  if (value == nullptr) source.fail(0, "the value itself can't be read: a bare storage");
  return std::move(*value);
}

c10::IValue read_source(const ByteSource& source, const ReadLimits& limits, std::vector<Refusal>* refusals,
                        std::shared_ptr<const ByteSource> file = nullptr) {
  try {
    ReadBudget budget(limits, source.size());
    Session session{limits, budget, refusals, std::move(file)};
    return value_of(source, read_archive(source, session));
  } catch (const std::bad_alloc&) {
    source.fail(0, "no memory for what it holds");
  }
}

}  // namespace

c10::IValue read_archive_file(const std::string& path, const ReadLimits& limits, std::vector<Refusal>* refusals) {
  const auto source = std::make_shared<const ByteSource>(ByteSource::file("file", path));
  return read_source(*source, limits, refusals, source);
}

c10::IValue read_archive_bytes(const void* data, std::size_t size, const ReadLimits& limits,
                               std::vector<Refusal>* refusals) {
  return read_source(ByteSource::memory("archive", data, size), limits, refusals);
}

c10::IValue read_pickle_bytes(const void* data, std::size_t size, const ReadLimits& limits,
                              std::vector<Refusal>* refusals) {
  const auto source = ByteSource::memory("pickle", data, size);
  ReadBudget budget(limits, source.size());
  Session session{limits, budget, refusals};
  const PickleGraph graph = read_pickle_graph(PickleBytes(source, 0, size, size), budget);
  if (graph.size_bytes != size) source.fail(graph.size_bytes, "there are bytes after the end of the pickle");
  BareEnvironment environment(source, session);
  return value_of(source, make_pickled_value(graph, environment, limits, budget, refusals));
}

}  // namespace dbg::codec
