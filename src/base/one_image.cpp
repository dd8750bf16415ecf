// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes the note, and looks for such notes in what is loaded.
#include "base/one_image.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dbg::base {
namespace {

// An ELF note: the linker puts it where the loader's list of images leads to, and keeps it whatever else it drops.
// Symbols would not do: those of shared objects that were opened locally are seen by nobody.
struct Note {
  std::uint32_t name_bytes;
  std::uint32_t description_bytes;
  std::uint32_t type;
  char name[8];
  char description[4];
};
constexpr std::uint32_t kType = 0x64626701;  // "dbg", 1

#ifdef __clang__  // whose AddressSanitizer would put a red zone into the section
[[clang::no_sanitize("address")]]
#endif
[[gnu::section(".note.dbg"), gnu::used, gnu::aligned(4)]] const Note note = {
    sizeof(Note::name), sizeof(Note::description), kType, "dbg.cpp", "1"};

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

// Whether one of the notes in a segment is ours.
bool holds_note(const char* at, std::size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, at, sizeof header);
    const std::size_t name_at = sizeof header;
    const std::size_t whole = name_at + padded(header.n_namesz) + padded(header.n_descsz);
    if (whole > size) return false;
    if (header.n_type == kType && header.n_namesz == sizeof note.name &&
        std::memcmp(at + name_at, note.name, sizeof note.name) == 0) {
      return true;
    }
    at += whole;
    size -= whole;
  }
  return false;
}

int look_into(dl_phdr_info* image, std::size_t, void* found) {
  for (int i = 0; i < image->dlpi_phnum; ++i) {
    const auto& segment = image->dlpi_phdr[i];
    // Notes aligned to 8 bytes are the compiler's own, and are laid out otherwise.
    if (segment.p_type != PT_NOTE || segment.p_align > 4) continue;
    const auto* start = reinterpret_cast<const char*>(image->dlpi_addr + segment.p_vaddr);
    if (!holds_note(start, segment.p_memsz)) continue;
    try {
      const bool is_program = image->dlpi_name == nullptr || *image->dlpi_name == '\0';
      static_cast<std::vector<std::string>*>(found)->emplace_back(is_program ? "the program itself" : image->dlpi_name);
    } catch (...) {
      return 1;  // no memory for the list: C code is above us
    }
    break;
  }
  return 0;
}

}  // namespace

std::vector<std::string> images_with_dbg() {
  std::vector<std::string> found;
  ::dl_iterate_phdr(&look_into, &found);
  return found;
}

}  // namespace dbg::base
