#pragma once
// Small files of every format, made by the libraries that everybody makes them with, or byte by byte.

#include "data/synthetic.hpp"

#include <cairn/data/image.hpp>

#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// clang-format off
#include <archive.h>
#include <archive_entry.h>
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>
// clang-format on

namespace cairn::test {

using bytes = std::vector<std::uint8_t>;

inline void append(bytes& to, std::span<const std::uint8_t> from) { to.insert(to.end(), from.begin(), from.end()); }
inline void append(bytes& to, const std::string& from) { to.insert(to.end(), from.begin(), from.end()); }

template <class T>
void append_number(bytes& to, T value, std::endian order) {
    std::array<std::uint8_t, sizeof(T)> raw;
    std::memcpy(raw.data(), &value, sizeof(T));
    if (order != std::endian::native) std::reverse(raw.begin(), raw.end());
    append(to, raw);
}

/// zlib's deflate; window bits 31 make a gzip file, -15 a raw stream.
inline bytes deflated(std::span<const std::uint8_t> plain, int window_bits) {
    z_stream z{};
    require(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
    bytes out(deflateBound(&z, static_cast<uLong>(plain.size())) + 64);
    z.next_in = const_cast<Bytef*>(plain.data());
    z.avail_in = static_cast<uInt>(plain.size());
    z.next_out = out.data();
    z.avail_out = static_cast<uInt>(out.size());
    require(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate");
    out.resize(z.total_out);
    deflateEnd(&z);
    return out;
}
inline bytes gzipped(std::span<const std::uint8_t> plain) { return deflated(plain, 31); }

/// An IDX file of bytes.
inline bytes idx_file(std::initializer_list<std::uint32_t> extents, std::span<const std::uint8_t> elements,
                      std::uint8_t type = 8) {
    bytes out{0, 0, type, static_cast<std::uint8_t>(extents.size())};
    for (std::uint32_t extent : extents) append_number(out, extent, std::endian::big);
    append(out, elements);
    return out;
}

/// Bytes 0, 1, 2, … times `step`.
inline bytes counting(std::size_t n, unsigned step = 1) {
    bytes out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(i * step);
    return out;
}

/// An .npy file of version `major`; `elements` as they are to lie in the file.
inline bytes npy_file(const std::string& descr, const std::string& shape, std::span<const std::uint8_t> elements,
                      bool fortran = false, int major = 1) {
    std::string header =
        "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
    const std::size_t before = major == 1 ? 10 : 12;
    while ((before + header.size() + 1) % 64) header += ' ';
    header += '\n';
    bytes out;
    append(out, std::string("\x93NUMPY"));
    out.push_back(static_cast<std::uint8_t>(major));
    out.push_back(0);
    if (major == 1)
        append_number(out, static_cast<std::uint16_t>(header.size()), std::endian::little);
    else
        append_number(out, static_cast<std::uint32_t>(header.size()), std::endian::little);
    append(out, header);
    append(out, elements);
    return out;
}

template <class T>
bytes elements_of(const std::vector<T>& values, std::endian order = std::endian::little) {
    bytes out;
    for (T value : values) append_number(out, value, order);
    return out;
}

/// Content of a NIfTI-1 file.
struct nifti_file_options {
    std::vector<std::int16_t> dim{4, 3, 2};  // (x, y, z…)
    std::int16_t datatype = 2, bitpix = 8;
    std::endian order = std::endian::little;
    float slope = 0, inter = 0, offset = 352;
    std::string magic = "n+1";
};

/// A .nii file; `elements` as they are to lie in the file, x fastest.
inline bytes nifti_file(const nifti_file_options& o, std::span<const std::uint8_t> elements) {
    bytes out(static_cast<std::size_t>(o.offset));
    const auto put = [&]<class T>(std::size_t at, T value) {
        bytes raw;
        append_number(raw, value, o.order);
        std::copy(raw.begin(), raw.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, std::int32_t{348});
    put(40, static_cast<std::int16_t>(o.dim.size()));
    for (std::size_t axis = 0; axis < o.dim.size(); ++axis) {
        put(42 + 2 * axis, o.dim[axis]);
        put(80 + 4 * axis, 1.5f);
    }
    put(70, o.datatype);
    put(72, o.bitpix);
    put(108, o.offset);
    put(112, o.slope);
    put(116, o.inter);
    std::copy(o.magic.begin(), o.magic.end(), out.begin() + 344);
    append(out, elements);
    return out;
}

/// A zip file; `wide` writes the sizes as zip64 fields, as NumPy does in local headers.
inline bytes zip_file(const std::vector<std::pair<std::string, bytes>>& members, bool deflate, bool wide = false) {
    constexpr auto little = std::endian::little;
    bytes out, directory;
    for (const auto& member : members) {
        const std::string& name = member.first;
        const bytes& plain = member.second;
        const bytes packed = deflate ? deflated(plain, -15) : plain;
        const auto crc = static_cast<std::uint32_t>(crc32(0, plain.data(), static_cast<uInt>(plain.size())));
        const std::size_t start = out.size();
        bytes extra;
        if (wide) {
            append_number<std::uint16_t>(extra, 1, little);
            append_number<std::uint16_t>(extra, 24, little);
            append_number<std::uint64_t>(extra, plain.size(), little);
            append_number<std::uint64_t>(extra, packed.size(), little);
            append_number<std::uint64_t>(extra, start, little);
        }
        const auto sizes = [&](bytes& to) {
            append_number<std::uint32_t>(to, wide ? 0xffffffff : static_cast<std::uint32_t>(packed.size()), little);
            append_number<std::uint32_t>(to, wide ? 0xffffffff : static_cast<std::uint32_t>(plain.size()), little);
            append_number<std::uint16_t>(to, static_cast<std::uint16_t>(name.size()), little);
            append_number<std::uint16_t>(to, static_cast<std::uint16_t>(extra.size()), little);
        };
        const auto common = [&](bytes& to) {
            append_number<std::uint16_t>(to, 45, little);
            append_number<std::uint16_t>(to, 0, little);
            append_number<std::uint16_t>(to, deflate ? 8 : 0, little);
            append_number<std::uint32_t>(to, 0, little);
            append_number<std::uint32_t>(to, crc, little);
        };
        append_number<std::uint32_t>(out, 0x04034b50, little);
        common(out);
        sizes(out);
        append(out, name);
        append(out, extra);
        append(out, packed);

        append_number<std::uint32_t>(directory, 0x02014b50, little);
        append_number<std::uint16_t>(directory, 45, little);
        common(directory);
        sizes(directory);
        for (int i = 0; i < 5; ++i) append_number<std::uint16_t>(directory, 0, little);
        append_number<std::uint32_t>(directory, wide ? 0xffffffff : static_cast<std::uint32_t>(start), little);
        append(directory, name);
        append(directory, extra);
    }
    const std::size_t start = out.size();
    append(out, directory);
    if (wide) {
        const std::size_t record = out.size();
        append_number<std::uint32_t>(out, 0x06064b50, little);
        append_number<std::uint64_t>(out, 44, little);
        append_number<std::uint32_t>(out, 0x002d002d, little);
        append_number<std::uint64_t>(out, 0, little);
        append_number<std::uint64_t>(out, members.size(), little);
        append_number<std::uint64_t>(out, members.size(), little);
        append_number<std::uint64_t>(out, directory.size(), little);
        append_number<std::uint64_t>(out, start, little);
        append_number<std::uint32_t>(out, 0x07064b50, little);
        append_number<std::uint32_t>(out, 0, little);
        append_number<std::uint64_t>(out, record, little);
        append_number<std::uint32_t>(out, 1, little);
    }
    append_number<std::uint32_t>(out, 0x06054b50, little);
    append_number<std::uint32_t>(out, 0, little);
    append_number<std::uint16_t>(out, static_cast<std::uint16_t>(members.size()), little);
    append_number<std::uint16_t>(out, static_cast<std::uint16_t>(members.size()), little);
    append_number<std::uint32_t>(out, static_cast<std::uint32_t>(directory.size()), little);
    append_number<std::uint32_t>(out, wide ? 0xffffffff : static_cast<std::uint32_t>(start), little);
    append_number<std::uint16_t>(out, 0, little);
    return out;
}

/// A smooth RGB picture with some texture, different for each seed.
inline image picture(index_t height, index_t width, unsigned seed = 0, index_t channels = 3) {
    image out;
    out.resize(height, width, channels);
    for (index_t y = 0; y < height; ++y)
        for (index_t x = 0; x < width; ++x)
            for (index_t c = 0; c < channels; ++c)
                out.row(y)[x * channels + c] =
                    static_cast<std::uint8_t>(128 + 60 * std::sin(0.07 * static_cast<double>(x * (c + 1)) + seed) +
                                              60 * std::cos(0.05 * static_cast<double>(y * (3 - c)) + 2 * seed));
    return out;
}

struct jpeg_options {
    int quality = 90;
    bool progressive = false;
    bool subsampled = true;
    int h = 0, v = 0;   // sampling factors of brightness beside those of the colours, 0: the library's
    bool inks = false;  // 4 channels, Adobe's inverted CMYK
};

/// A JPEG file of 1 (grey), 3 (RGB) or 4 (CMYK) channels.
inline bytes jpeg_file(const image& in, jpeg_options options = {}) {
    jpeg_compress_struct c{};
    jpeg_error_mgr errors{};
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    unsigned char* buffer = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&c, &buffer, &size);
    c.image_width = static_cast<JDIMENSION>(in.width);
    c.image_height = static_cast<JDIMENSION>(in.height);
    c.input_components = static_cast<int>(in.channels);
    c.in_color_space = in.channels == 1 ? JCS_GRAYSCALE : in.channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, options.quality, TRUE);
    if (in.channels == 3 && !options.subsampled) c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = 1;
    if (options.h) c.comp_info[0].h_samp_factor = options.h, c.comp_info[0].v_samp_factor = options.v;
    if (options.progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = const_cast<JSAMPROW>(in.row(c.next_scanline));
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    bytes out(buffer, buffer + size);
    std::free(buffer);
    return out;
}

/// A PNG file; format one of libpng's PNG_FORMAT_GRAY, _RGB, _RGBA.
inline bytes png_file(const image& in, png_uint_32 format = PNG_FORMAT_RGB) {
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    png.width = static_cast<png_uint_32>(in.width);
    png.height = static_cast<png_uint_32>(in.height);
    png.format = format;
    png_alloc_size_t size = 0;
    require(png_image_write_to_memory(&png, nullptr, &size, 0, in.pixels.data(), 0, nullptr), png.message);
    bytes out(size);
    require(png_image_write_to_memory(&png, out.data(), &size, 0, in.pixels.data(), 0, nullptr), png.message);
    out.resize(size);
    return out;
}

/// A tar archive of files and (names that end in '/') folders; `filter` "", "gzip" or "zstd". The member `link_name` is
/// a hard link to the first one.
inline bytes tar_file(const std::vector<std::pair<std::string, bytes>>& members, const std::string& filter = "",
                      const std::string& link_name = "") {
    archive* a = archive_write_new();
    archive_write_set_format_ustar(a);
    if (filter == "gzip") archive_write_add_filter_gzip(a);
    if (filter == "zstd") archive_write_add_filter_zstd(a);
    bytes out;
    archive_write_set_bytes_in_last_block(a, 1);
    archive_write_open(
        a, &out, nullptr,
        [](archive*, void* to, const void* piece, std::size_t n) -> la_ssize_t {
            append(*static_cast<bytes*>(to), std::span(static_cast<const std::uint8_t*>(piece), n));
            return static_cast<la_ssize_t>(n);
        },
        nullptr);
    for (const auto& [name, content] : members) {
        archive_entry* entry = archive_entry_new();
        archive_entry_set_pathname(entry, name.c_str());
        archive_entry_set_filetype(entry, name.ends_with('/') ? AE_IFDIR : AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        const bool link = name == link_name;
        if (link) archive_entry_set_hardlink(entry, members.front().first.c_str());
        archive_entry_set_size(entry, link ? 0 : static_cast<la_int64_t>(content.size()));
        archive_write_header(a, entry);
        if (!content.empty() && !link) archive_write_data(a, content.data(), content.size());
        archive_entry_free(entry);
    }
    archive_write_close(a);
    archive_write_free(a);
    return out;
}

}  // namespace cairn::test
