// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Build tool: marks as hidden every symbol that a static library defines outside one namespace.
//
// -fvisibility=hidden cannot do it: std declares itself default-visible, c10 and fmt mark classes of theirs, and so
// instantiations of their templates stay exported from a shared object that links the library. Run on the finished
// archive, it changes only the visibility bits of symbol table entries (st_other), so no size or offset moves and the
// archive's index stays right. A symbol that is already hidden, local or undefined is left alone.
#include <elf.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kArchiveMagic = "!<arch>\n";
constexpr std::size_t kMemberHeaderBytes = 60;

bool eat(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Eats a thunk's offset: an optional 'n' for minus, digits, '_'.
void eat_offset(std::string_view& text) {
  eat(text, "n");
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') text.remove_prefix(1);
  eat(text, "_");
}

// Whether an Itanium-mangled name belongs to the namespace given as its mangled component ("3dbg"): the name itself,
// its vtable, type information, guard or thread-local wrapper, a thunk to it, or an entity local to it.
bool is_in_namespace(std::string_view name, std::string_view component) {
  if (!eat(name, "_Z")) return false;
  if (eat(name, "Th")) {
    eat_offset(name);
  } else if (eat(name, "Tv")) {
    eat_offset(name);
    eat_offset(name);
  } else {
    for (const std::string_view special : {"TV", "TI", "TS", "TT", "TC", "TH", "TW", "GV", "GR"}) {
      if (eat(name, special)) break;
    }
  }
  while (eat(name, "Z")) {
  }
  if (!eat(name, "N")) return false;
  while (eat(name, "r") || eat(name, "V") || eat(name, "K") || eat(name, "R") || eat(name, "O")) {
  }
  return name.starts_with(component);
}

// Bounds-checked reading of a T at `offset`; by copy, since archive members are aligned to two bytes only.
template <typename T>
T read_at(const std::vector<char>& bytes, std::size_t offset, std::size_t end) {
  if (offset > end || end - offset < sizeof(T)) throw std::runtime_error("an object in the archive is cut short");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Returns how many symbols it hid.
std::size_t hide_in_object(std::vector<char>& bytes, std::size_t begin, std::size_t end, std::string_view component) {
  const auto file = read_at<Elf64_Ehdr>(bytes, begin, end);
  if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_ident[EI_DATA] != ELFDATA2LSB || file.e_type != ET_REL) {
    throw std::runtime_error("an object in the archive is not a 64-bit little-endian relocatable file");
  }
  std::size_t hidden = 0;
  const auto section_at = [&](std::size_t index) {
    return read_at<Elf64_Shdr>(bytes, begin + file.e_shoff + index * sizeof(Elf64_Shdr), end);
  };
  // More sections than e_shnum holds are counted in the first one.
  const std::size_t sections = file.e_shnum != 0 ? file.e_shnum : section_at(0).sh_size;
  for (std::size_t i = 0; i < sections; ++i) {
    const Elf64_Shdr table = section_at(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr names = section_at(table.sh_link);
    for (std::size_t at = table.sh_offset; at + sizeof(Elf64_Sym) <= table.sh_offset + table.sh_size;
         at += sizeof(Elf64_Sym)) {
      auto symbol = read_at<Elf64_Sym>(bytes, begin + at, end);
      const bool is_exported = symbol.st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL &&
                               (ELF64_ST_VISIBILITY(symbol.st_other) == STV_DEFAULT ||
                                ELF64_ST_VISIBILITY(symbol.st_other) == STV_PROTECTED);
      if (!is_exported) continue;
      const std::size_t name_at = begin + names.sh_offset + symbol.st_name;
      if (name_at >= end) throw std::runtime_error("a symbol's name lies outside of its object");
      const char* name = bytes.data() + name_at;
      if (is_in_namespace(std::string_view(name, strnlen(name, end - name_at)), component)) continue;
      symbol.st_other = static_cast<unsigned char>((symbol.st_other & ~0x3U) | STV_HIDDEN);
      std::memcpy(bytes.data() + begin + at, &symbol, sizeof(symbol));
      ++hidden;
    }
  }
  return hidden;
}

std::size_t hide_in_archive(std::vector<char>& bytes, std::string_view component) {
  if (!std::string_view(bytes.data(), bytes.size()).starts_with(kArchiveMagic)) {
    throw std::runtime_error("not an archive (thin archives are not handled)");
  }
  std::size_t hidden = 0;
  std::size_t at = kArchiveMagic.size();
  while (at + kMemberHeaderBytes <= bytes.size()) {
    const std::string size_field(bytes.data() + at + 48, 10);
    const std::size_t begin = at + kMemberHeaderBytes;
    const std::size_t size = std::strtoull(size_field.c_str(), nullptr, 10);
    if (size > bytes.size() - begin) throw std::runtime_error("a member reaches past the end of the archive");
    // The index and the table of long names are members too, and no objects.
    if (size > SELFMAG && std::memcmp(bytes.data() + begin, ELFMAG, SELFMAG) == 0) {
      hidden += hide_in_object(bytes, begin, begin + size, component);
    }
    at = begin + size + size % 2;
  }
  return hidden;
}

std::vector<char> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot be read");
  std::vector<char> bytes(std::filesystem::file_size(path));
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) throw std::runtime_error("cannot be read");
  return bytes;
}

// Under a name of its own first: a build that is stopped here must not leave half a library that looks finished.
void replace_file(const std::filesystem::path& path, const std::vector<char>& bytes) {
  const std::filesystem::path partial = path.string() + ".partial";
  {
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())) || !out.flush()) {
      throw std::runtime_error("cannot be written");
    }
  }
  std::filesystem::rename(partial, path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: hide_symbols ARCHIVE NAMESPACE\n");
    return 2;
  }
  const std::string space = argv[2];
  try {
    std::vector<char> bytes = read_file(argv[1]);
    if (hide_in_archive(bytes, std::to_string(space.size()) + space) != 0) replace_file(argv[1], bytes);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hide_symbols: %s: %s\n", argv[1], error.what());
    return 1;
  }
}
