#pragma once
// NIfTI-1 volumes of medical images (nifti.nimh.nih.gov, nifti1.h): single files .nii, plain or gzip, of either
// byte order.
//   header of 348 bytes: 40 dim[8], 70 datatype, 72 bitpix, 108 vox_offset, 112 scl_slope, 116 scl_inter, 344 "n+1"
//   value = scl_slope · stored + scl_inter; the stored value where scl_slope is 0 or not finite
// Stored with x fastest; given out row-major as (x, y, z…), so that x is slowest: the indices are those of nibabel.
// Not read: pairs .hdr + .img, NIfTI-2, complex numbers and colours. Orientation in the scanner (qform, sform) is left
// out: a network sees voxels.

#include <cairn/core/tensor.hpp>
#include <cairn/data/gzip.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace cairn {

/// Elements of a NIfTI file, by their codes there.
enum class nifti_type : std::int16_t { u8 = 2, i16 = 4, i32 = 8, f32 = 16, f64 = 64, i8 = 256, u16 = 512, u32 = 768 };

/// A volume as it lies in the file.
struct nifti_volume {
    nifti_type type = nifti_type::u8;
    std::endian order = std::endian::little;
    double slope = 1, inter = 0;      // value = slope · stored + inter
    cairn::shape shape;               // (x, y, z…), without trailing axes of extent 1 beyond the third
    std::vector<double> spacing;      // of voxels along each axis, usually in mm
    std::vector<std::uint8_t> bytes;  // x fastest
    std::string name;                 // of the file, for errors

    /// All values, row-major: x slowest. Throws on finite ones that a float does not hold.
    tensor<float> to_tensor(memory_category use = memory_category::data) const;
};

namespace detail {

/// visit(example of the stored type). Throws naming the code of another one.
template <class Visitor>
decltype(auto) visit_nifti(std::int16_t code, const std::string& name, Visitor&& visit) {
    switch (static_cast<nifti_type>(code)) {
        case nifti_type::u8:
            return visit(std::uint8_t{});
        case nifti_type::i16:
            return visit(std::int16_t{});
        case nifti_type::i32:
            return visit(std::int32_t{});
        case nifti_type::f32:
            return visit(float{});
        case nifti_type::f64:
            return visit(double{});
        case nifti_type::i8:
            return visit(std::int8_t{});
        case nifti_type::u16:
            return visit(std::uint16_t{});
        case nifti_type::u32:
            return visit(std::uint32_t{});
    }
    fail(name, ": byte 70: field datatype is ", code,
         "; 2, 4, 8, 16, 64, 256, 512 and 768 are read (uint8, int16, int32, float32, float64, int8, uint16, uint32): "
         "convert the volume");
}

/// The byte order in which the first number is 348.
inline std::endian nifti_order(byte_span bytes, const std::string& name) {
    constexpr std::int32_t header_bytes = 348, nifti2_bytes = 540;
    std::int32_t size = 0;
    for (const std::endian order : {std::endian::little, std::endian::big}) {
        size = byte_reader(bytes, name).number<std::int32_t>("field sizeof_hdr", order);
        if (size == header_bytes) return order;
        require(size != nifti2_bytes, name, ": byte 0: a NIfTI-2 file; save it as NIfTI-1");
    }
    fail(name, ": byte 0: field sizeof_hdr is neither ", header_bytes,
         " nor that in the other byte order: not a NIfTI-1 file (.nii, .nii.gz), or damaged; fetch or save it again");
}

}  // namespace detail

/// Takes a .nii file apart that is already in memory and not compressed. Throws on anything else, naming the field.
inline nifti_volume parse_nifti(byte_span bytes, const std::string& name) {
    nifti_volume v;
    v.name = name;
    v.order = detail::nifti_order(bytes, name);
    byte_reader whole(bytes, name);
    const byte_span header = whole.take(348, "the NIfTI-1 header");
    const auto at = [&](std::size_t byte) {
        byte_reader in(header, name);
        in.take(byte, "the NIfTI-1 header");
        return in;
    };
    const byte_span magic = at(344).take(4, "field magic");
    require(std::memcmp(magic.data(), "ni1", 4) != 0, name,
            ": byte 344: a pair of files, .hdr and .img; save them as one .nii file");
    require(std::memcmp(magic.data(), "n+1", 4) == 0, name,
            ": byte 344: field magic is not \"n+1\": not a NIfTI-1 file, or damaged; fetch or save it again");

    byte_reader extents = at(40);
    const auto rank = extents.number<std::int16_t>("field dim[0]", v.order);
    require(rank >= 1 && rank <= 7, name, ": byte 40: field dim[0] is ", rank,
            ", the number of axes; 1 to 7 are possible: damaged header?");
    std::vector<std::int64_t> dim;
    for (int axis = 1; axis <= rank; ++axis) {
        dim.push_back(extents.number<std::int16_t>("field dim", v.order));
        require(dim.back() >= 1, name, ": byte ", 40 + 2 * axis, ": field dim[", axis, "] is ", dim.back(),
                "; an extent of at least 1 is expected: damaged header?");
    }
    while (dim.size() > 3 && dim.back() == 1) dim.pop_back();
    require(dim.size() <= shape::max_rank, name, ": byte 40: field dim has ", dim.size(), " axes; at most ",
            shape::max_rank, " are read: split the volume");
    const std::uint64_t count = checked_product(dim, most_elements, name);
    v.shape = shape(dim);
    byte_reader sizes = at(80);
    for (std::size_t axis = 0; axis < dim.size(); ++axis)
        v.spacing.push_back(std::abs(static_cast<double>(sizes.number<float>("field pixdim", v.order))));

    const auto code = at(70).number<std::int16_t>("field datatype", v.order);
    const std::size_t width = detail::visit_nifti(code, name, [](auto example) { return sizeof(example); });
    v.type = static_cast<nifti_type>(code);
    const auto bits = at(72).number<std::int16_t>("field bitpix", v.order);
    require(bits == static_cast<int>(8 * width), name, ": byte 72: field bitpix is ", bits,
            ", but elements of datatype ", code, " have ", 8 * width, " bits: damaged header?");
    const auto slope = at(112).number<float>("field scl_slope", v.order),
               inter = at(116).number<float>("field scl_inter", v.order);
    if (slope != 0 && std::isfinite(slope)) {
        require(std::isfinite(inter), name, ": byte 116: field scl_inter is ", inter, ", and scl_slope ", slope,
                ": damaged header?");
        v.slope = static_cast<double>(slope);
        v.inter = static_cast<double>(inter);
    }

    const auto offset = at(108).number<float>("field vox_offset", v.order);
    require(offset >= 352 && offset <= 0x1p30f && offset == std::trunc(offset), name,
            ": byte 108: field vox_offset is ", offset,
            "; voxels begin at a whole number of bytes, at least 352: damaged header?");
    const auto begin = static_cast<std::uint64_t>(offset), expected = count * width;
    require(begin <= bytes.size() && bytes.size() - begin >= expected, name, ": truncated: field dim says ", v.shape,
            ", whose voxels take ", expected, " bytes from byte ", begin, "; the file ends at byte ", bytes.size(),
            ": fetch it again");
    const byte_span voxels = bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(expected));
    v.bytes.assign(voxels.begin(), voxels.end());
    return v;
}

/// The same of a file that may be compressed.
inline nifti_volume parse_maybe_gzip_nifti(byte_span bytes, const std::string& name) {
    return is_gzip(bytes) ? parse_nifti(gunzip(bytes, name), name) : parse_nifti(bytes, name);
}

/// Reads a .nii or .nii.gz file.
inline nifti_volume read_nifti(const std::filesystem::path& path) {
    return parse_maybe_gzip_nifti(read_bytes(path), path.string());
}

inline tensor<float> nifti_volume::to_tensor(memory_category use) const {
    tensor<float> t(shape, use);
    detail::visit_nifti(static_cast<std::int16_t>(type), name, [&](auto example) {
        using Stored = decltype(example);
        byte_reader in(bytes, name);
        std::vector<index_t> at(static_cast<std::size_t>(shape.rank())), stride(at.size(), 1);
        for (std::size_t axis = at.size() - 1; axis-- > 0;)
            stride[axis] = stride[axis + 1] * shape[static_cast<int>(axis) + 1];
        index_t to = 0;
        for (index_t i = 0; i < t.size(); ++i) {
            const auto stored = static_cast<double>(in.number<Stored>("a voxel", order));
            t[to] = element_as<float>(slope * stored + inter, i, name);
            for (std::size_t axis = 0; axis < at.size(); ++axis) {
                to += stride[axis];
                if (++at[axis] < shape[static_cast<int>(axis)]) break;
                to -= at[axis] * stride[axis];
                at[axis] = 0;
            }
        }
    });
    return t;
}

}  // namespace cairn
