// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The checksum that zip archives carry for each entry.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dbg::codec {

/// Returns the CRC-32 (the one of zip and zlib) of the bytes that `previous` covers, followed by these.
///
/// Takes carry-less multiplication where the processor has it: a checksum then costs a small part of the write it goes
/// with, where a table lookup per byte group would cost about as much again.
std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t previous = 0) noexcept;

/// The same by table lookups only: what other processors run. Apart so that tests can compare the two.
std::uint32_t crc32_portable(const void* data, std::size_t size, std::uint32_t previous = 0) noexcept;

}  // namespace dbg::codec
