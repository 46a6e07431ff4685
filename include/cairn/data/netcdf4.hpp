#pragma once
// netCDF-4: an HDF5 file of certain habits (Unidata, "NetCDF-4 File Format"). Variables are data sets, dimensions are
// dimension scales: data sets that others name in DIMENSION_LIST, and that are variables too where NAME does not deny
// it. Where HDF5 knows no name for a dimension it is called phony_dim_LENGTH. Elements come from data/hdf5.hpp, whose
// words on damaged files hold here. Variables and attributes that hold neither numbers nor (attributes) text are left
// out.

#include <cairn/data/hdf5.hpp>
#include <cairn/data/netcdf_classic.hpp>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace cairn::detail {

/// Whether a file begins as HDF5 does.
inline bool has_hdf5_signature(const std::filesystem::path& path) {
    std::array<char, 8> start{};
    std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
    return std::string_view(start.data(), start.size()) == "\x89HDF\r\n\x1a\n";
}

class netcdf4_file {
public:
    /// Throws when it is no HDF5 file, or Cairn was built without HDF5.
    explicit netcdf4_file(const std::filesystem::path& path) : name_(path.string()), elements_(path) { describe(path); }

    const netcdf_description& description() const { return all_; }

    /// All elements of variable `number`, as netcdf_classic_file gives them.
    template <class T>
    tensor<T> read(std::size_t number, memory_category use) const {
        return elements_.read<T>(datasets_[number], use);
    }

private:
#if CAIRN_HAS_HDF5
    using handle = hdf5_handle;

    void describe(const std::filesystem::path& path) {
        const std::vector<std::string> names = elements_.datasets();
        most_bytes_ = std::filesystem::file_size(path);
        const hdf5_session s;
        const handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose);
        require(file.valid(), name_, ": not an HDF5 file, or a damaged one: ", hdf5_reason());
        const handle root(H5Gopen2(file.get(), "/", H5P_DEFAULT), &H5Gclose);
        all_.attributes = attributes_of(root.get());
        for (const std::string& name : names) {
            const handle dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), &H5Dclose);
            if (text_of(dataset.get(), "CLASS") == "DIMENSION_SCALE") add_dimension(dataset.get(), name);
        }
        for (const std::string& name : names) {
            const handle dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), &H5Dclose);
            add_variable(file.get(), dataset.get(), name);
        }
    }

    struct extents_of {
        explicit extents_of(hid_t dataset) {
            const handle space(H5Dget_space(dataset), &H5Sclose);
            const int rank = H5Sget_simple_extent_ndims(space.get());
            length.resize(static_cast<std::size_t>(std::max(rank, 0)));
            most.resize(length.size());
            H5Sget_simple_extent_dims(space.get(), length.data(), most.data());
        }
        std::vector<hsize_t> length, most;
    };

    void add_dimension(hid_t dataset, const std::string& name) {
        const extents_of e(dataset);
        if (e.length.empty()) return;
        all_.dimensions.push_back({name, static_cast<index_t>(e.length[0]), e.most[0] == H5S_UNLIMITED});
    }

    std::size_t dimension(const std::string& name, hsize_t length) {
        for (std::size_t i = 0; i < all_.dimensions.size(); ++i)
            if (all_.dimensions[i].name == name) return i;
        const std::string phony = concat("phony_dim_", length);
        if (name != phony) return dimension(phony, length);
        all_.dimensions.push_back({phony, static_cast<index_t>(length), false});
        return all_.dimensions.size() - 1;
    }

    void add_variable(hid_t file, hid_t dataset, const std::string& name) {
        const handle type(H5Dget_type(dataset), &H5Tclose);
        const std::optional<netcdf_type> stored = number_type(type.get());
        if (!stored || text_of(dataset, "NAME").starts_with("This is a netCDF dimension but not a netCDF variable"))
            return;
        netcdf_variable v{.name = name, .type = *stored};
        // What has the name of a dimension that it does not lie along is stored under another.
        constexpr std::string_view hidden = "_nc4_non_coord_";
        const std::size_t last = name.rfind('/') + 1;  // 0 where there is none
        if (v.name.substr(last).starts_with(hidden)) v.name.erase(last, hidden.size());
        const extents_of e(dataset);
        const bool scale = e.length.size() == 1 && text_of(dataset, "CLASS") == "DIMENSION_SCALE";
        const std::vector<std::string> names =
            scale ? std::vector{name} : dimension_list(file, dataset, e.length.size());
        for (std::size_t axis = 0; axis < e.length.size(); ++axis) {
            v.extents.push_back(static_cast<index_t>(e.length[axis]));
            v.dimensions.push_back(dimension(names[axis], e.length[axis]));
        }
        v.attributes = attributes_of(dataset);
        all_.variables.push_back(std::move(v));
        datasets_.push_back(name);
    }

    // The paths of the scales along a data set's axes; "" where there is none.
    static std::vector<std::string> dimension_list(hid_t file, hid_t dataset, std::size_t rank) {
        std::vector<std::string> names(rank);
        if (H5Aexists(dataset, "DIMENSION_LIST") <= 0) return names;
        const handle list(H5Aopen(dataset, "DIMENSION_LIST", H5P_DEFAULT), &H5Aclose),
            type(H5Aget_type(list.get()), &H5Tclose), space(H5Aget_space(list.get()), &H5Sclose),
            references(H5Tvlen_create(H5T_STD_REF_OBJ), &H5Tclose);
        if (H5Tget_class(type.get()) != H5T_VLEN ||
            H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(rank))
            return names;
        struct scale_list : hvl_t {};  // HDF5's has no name, which a vector in nvcc 13.0 needs
        std::vector<scale_list> scales(rank);
        if (H5Aread(list.get(), references.get(), scales.data()) < 0) return names;
        for (std::size_t axis = 0; axis < rank; ++axis) {
            if (scales[axis].len == 0) continue;
            const handle scale(H5Rdereference2(file, H5P_DEFAULT, H5R_OBJECT, scales[axis].p), &H5Oclose);
            std::array<char, 1024> path{};
            if (scale.valid() && H5Iget_name(scale.get(), path.data(), path.size()) > 1) names[axis] = path.data() + 1;
        }
        H5Dvlen_reclaim(references.get(), space.get(), H5P_DEFAULT, scales.data());
        return names;
    }

    std::vector<netcdf_attribute> attributes_of(hid_t object) const {
        constexpr std::array<std::string_view, 8> hidden{"CLASS",          "NAME",          "DIMENSION_LIST",
                                                         "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates",
                                                         "_NCProperties",  "_nc3_strict"};
        std::vector<netcdf_attribute> out;
        const int n = std::max(H5Aget_num_attrs(object), 0);
        for (int i = 0; i < n; ++i) {
            const handle attribute(H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, static_cast<hsize_t>(i),
                                                  H5P_DEFAULT, H5P_DEFAULT),
                                   &H5Aclose);
            std::array<char, 1024> name{};
            require(H5Aget_name(attribute.get(), name.size(), name.data()) > 0, name_,
                    ": an attribute without name: ", hdf5_reason());
            if (std::find(hidden.begin(), hidden.end(), std::string_view(name.data())) != hidden.end()) continue;
            if (auto a = attribute_of(attribute.get())) {
                a->name = name.data();
                out.push_back(std::move(*a));
            }
        }
        return out;
    }

    std::string text_of(hid_t object, const char* name) const {
        if (H5Aexists(object, name) <= 0) return {};
        const handle attribute(H5Aopen(object, name, H5P_DEFAULT), &H5Aclose);
        const auto a = attribute_of(attribute.get());
        return a && a->type == netcdf_type::text ? a->text() : "";
    }

    // Its values; none where they are neither numbers nor one text.
    std::optional<netcdf_attribute> attribute_of(hid_t attribute) const {
        const handle type(H5Aget_type(attribute), &H5Tclose), space(H5Aget_space(attribute), &H5Sclose);
        const auto count = static_cast<std::uint64_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space.get()), 0));
        netcdf_attribute a;
        if (H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) > 0) {
            if (count != 1) return {};
            char* text = nullptr;
            if (H5Aread(attribute, type.get(), &text) < 0 || !text) return {};
            a.bytes.assign(text, text + std::strlen(text));
            H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, &text);
            return a;
        }
        const bool is_text = H5Tget_class(type.get()) == H5T_STRING;
        const std::optional<netcdf_type> number = is_text ? netcdf_type::text : number_type(type.get());
        if (!number || (is_text && count > 1)) return {};
        a.type = *number;
        const std::uint64_t width = is_text ? H5Tget_size(type.get()) : size_of(a.type);
        require(count <= most_bytes_ / std::max<std::uint64_t>(width, 1), name_, ": an attribute of ", count,
                " values in a file of ", most_bytes_, " bytes: damaged file?");
        a.bytes.resize(static_cast<std::size_t>(count * width));
        if (a.bytes.empty()) return a;
        require(H5Aread(attribute, is_text ? type.get() : big_endian(a.type), a.bytes.data()) >= 0, name_,
                ": an attribute cannot be read: ", hdf5_reason());
        if (is_text) a.bytes.erase(std::find(a.bytes.begin(), a.bytes.end(), 0), a.bytes.end());
        return a;
    }

    // The type of netCDF that holds the numbers of an HDF5 type, or none.
    static std::optional<netcdf_type> number_type(hid_t type) {
        using enum netcdf_type;
        const H5T_class_t kind = H5Tget_class(type);
        const std::size_t width = H5Tget_size(type);
        if (kind == H5T_FLOAT) return width <= sizeof(float) ? f32 : f64;
        if ((kind != H5T_INTEGER && kind != H5T_ENUM) || width > 8 || !std::has_single_bit(width)) return {};
        const handle base(kind == H5T_ENUM ? H5Tget_super(type) : H5Tcopy(type), &H5Tclose);
        constexpr std::array<netcdf_type, 4> with_sign{i8, i16, i32, i64}, without{u8, u16, u32, u64};
        const auto i = static_cast<std::size_t>(std::countr_zero(width));
        return H5Tget_sign(base.get()) == H5T_SGN_NONE ? without[i] : with_sign[i];
    }

    static hid_t big_endian(netcdf_type type) {
        return visit_netcdf(type, [](auto example) {
            using T = decltype(example);
            constexpr bool with_sign = std::is_signed_v<T>;
            if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? H5T_IEEE_F32BE : H5T_IEEE_F64BE;
            switch (sizeof(T)) {
                case 1:
                    return with_sign ? H5T_STD_I8BE : H5T_STD_U8BE;
                case 2:
                    return with_sign ? H5T_STD_I16BE : H5T_STD_U16BE;
                case 4:
                    return with_sign ? H5T_STD_I32BE : H5T_STD_U32BE;
                default:
                    return with_sign ? H5T_STD_I64BE : H5T_STD_U64BE;
            }
        });
    }
    std::uint64_t most_bytes_ = 0;  // no attribute has more: that is the file's size
#else
    void describe(const std::filesystem::path&) {}
#endif

    std::string name_;
    hdf5_file elements_;
    netcdf_description all_;
    std::vector<std::string> datasets_;  // of each variable
};

}  // namespace cairn::detail
