#pragma once
// Arrays in HDF5 files, by the C library (data/hdf5_library.hpp).
// Integers, booleans and enumerations (as their integers) and floating-point numbers of up to six axes, by any filter
// that the library has; whole, or a box of it: ranks read their part alone. What was never written has the data set's
// fill value. Data sets whose elements lie in other files are refused: where those are missing the library invents
// elements. The serial library is not thread safe, so calls take turns.
// Truncated files are refused. Damage inside the library's own structures is its to notice, and version 1.10 does not
// always: read files that you trust.

#include <cairn/core/box.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/data/bytes.hpp>
#include <cairn/data/hdf5_library.hpp>

#include <array>
#include <optional>
#include <span>
#include <utility>

namespace cairn {

#if CAIRN_HAS_HDF5

class hdf5_file {
public:
    /// Opens a file for reading. Throws when it does not exist or is no HDF5 file.
    explicit hdf5_file(const std::filesystem::path& path) : name_(path.string()) {
        const detail::hdf5_session s;
        std::error_code ignored;
        require(std::filesystem::is_regular_file(path, ignored), name_, ": no such file");
        file_ = handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), &H5Fclose);
        require(file_.valid(), name_, ": not an HDF5 file, or a damaged one: ", detail::hdf5_reason());
    }
    ~hdf5_file() {
        const detail::hdf5_session s;
        file_ = handle();
    }
    hdf5_file(const hdf5_file&) = delete;
    hdf5_file& operator=(const hdf5_file&) = delete;

    /// Paths of all data sets, in alphabetical order.
    std::vector<std::string> datasets() const {
        const detail::hdf5_session s;
        return dataset_names();
    }

    /// Extents of a data set.
    cairn::shape shape(const std::string& dataset) const {
        const detail::hdf5_session s;
        return open(dataset).extents;
    }

    /// Whether a data set holds integers (otherwise floating-point numbers).
    bool holds_integers(const std::string& dataset) const {
        const detail::hdf5_session s;
        return H5Tget_class(open(dataset).type.get()) != H5T_FLOAT;
    }

    /// A whole data set. T: float, double, or an integer type; all elements must fit.
    template <class T>
    tensor<T> read(const std::string& dataset, memory_category use = memory_category::data) const {
        const detail::hdf5_session s;
        const opened d = open(dataset);
        tensor<T> t = room_for<T>(dataset, d.extents, use);
        read_into(d, dataset, t, {});
        return t;
    }

    /// Positions [begin, begin + count) of the first axis.
    template <class T>
    tensor<T> read_rows(const std::string& dataset, index_t begin, index_t count,
                        memory_category use = memory_category::data) const {
        const detail::hdf5_session s;
        const opened d = open(dataset);
        require(d.extents.rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= d.extents[0], where(dataset),
                "rows ", begin, " to ", begin + count, " of shape ", d.extents);
        tensor<T> t = room_for<T>(dataset, d.extents.with(0, count), use);
        read_into(d, dataset, t, std::array<index_t, cairn::shape::max_rank>{begin});
        return t;
    }

    /// The box of shape `count` that begins at `begin`: its parts of the file alone are read, of packed data sets the
    /// chunks that it meets.
    template <class T>
    tensor<T> read_box(const std::string& dataset, std::span<const index_t> begin, const cairn::shape& count,
                       memory_category use = memory_category::data) const {
        const detail::hdf5_session s;
        const opened d = open(dataset);
        with_context(concat(name_, ": data set '", dataset, "'"), [&] { check_box(d.extents, begin, count); });
        tensor<T> t = room_for<T>(dataset, count, use);
        std::array<index_t, cairn::shape::max_rank> start{};
        std::copy(begin.begin(), begin.end(), start.begin());
        read_into(d, dataset, t, start);
        return t;
    }

private:
    using handle = detail::hdf5_handle;

    struct opened {
        handle dataset, type;
        cairn::shape extents;
    };

    std::vector<std::string> dataset_names() const {
        std::vector<std::string> names;
        H5Ovisit2(
            file_.get(), H5_INDEX_NAME, H5_ITER_INC,
            [](hid_t, const char* name, const H5O_info_t* info, void* out) -> herr_t {
                if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(out)->emplace_back(name);
                return 0;
            },
            &names, H5O_INFO_BASIC);
        return names;
    }

    std::string where(const std::string& dataset) const { return concat(name_, ": data set '", dataset, "': "); }

    opened open(const std::string& dataset) const {
        opened d;
        d.dataset = handle(H5Dopen2(file_.get(), dataset.c_str(), H5P_DEFAULT), &H5Dclose);
        if (!d.dataset.valid()) refuse_unopened(dataset, detail::hdf5_reason());
        d.type = handle(H5Dget_type(d.dataset.get()), &H5Tclose);
        const H5T_class_t kind = H5Tget_class(d.type.get());
        require(kind == H5T_INTEGER || kind == H5T_ENUM || kind == H5T_FLOAT, where(dataset),
                "its elements are neither integers nor floating-point numbers, but of class ", detail::name_of(kind));
        require(kind == H5T_FLOAT || H5Tget_size(d.type.get()) <= sizeof(std::uint64_t), where(dataset), "integers of ",
                H5Tget_size(d.type.get()), " bytes; up to 8 are read");
        const handle space(H5Dget_space(d.dataset.get()), &H5Sclose),
            how(H5Dget_create_plist(d.dataset.get()), &H5Pclose);
        require(H5Sget_simple_extent_type(space.get()) != H5S_NULL, where(dataset),
                "has no elements (a null data space); write numbers");
        const int rank = H5Sget_simple_extent_ndims(space.get());
        require(rank >= 0, where(dataset), "unreadable extents: ", detail::hdf5_reason());
        require(rank <= cairn::shape::max_rank, where(dataset), rank, " axes; up to ", cairn::shape::max_rank,
                " are read");
        std::array<hsize_t, cairn::shape::max_rank> extents{};
        H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
        checked_product(std::span(extents.data(), static_cast<std::size_t>(rank)), most_elements,
                        concat(name_, ": data set '", dataset, "'"));
        for (int axis = 0; axis < rank; ++axis)
            d.extents.push_back(static_cast<index_t>(extents[static_cast<std::size_t>(axis)]));
        check_storage(d, dataset, how.get());
        return d;
    }

    bool is_group(const std::string& name) const {
        return handle(H5Gopen2(file_.get(), name.c_str(), H5P_DEFAULT), &H5Gclose).valid();
    }
    [[noreturn]] void refuse_unopened(const std::string& dataset, const std::string& why) const {
        if (H5Lexists(file_.get(), dataset.c_str(), H5P_DEFAULT) > 0 && !is_group(dataset)) {
            unsigned major = 0, minor = 0, release = 0;
            H5get_libversion(&major, &minor, &release);
            fail(where(dataset), "HDF5 ", major, '.', minor, '.', release, " of this program cannot open it: ", why,
                 "; it is damaged, a link to what is not there, or a newer HDF5 wrote it: there, write a copy that "
                 "older ones read (h5py: libver = 'v110')");
        }
        const std::string there = listed(dataset_names());
        fail(where(dataset), "not there; there are: ", there.empty() ? "none" : there);
    }

    // Whether the library finds, or makes by the fill value, every element.
    void check_storage(const opened& d, const std::string& dataset, hid_t how) const {
        const char* const copy = "; write its elements into one file (h5py: copy[name] = original[name][...])";
        require(H5Pget_layout(how) != H5D_VIRTUAL, where(dataset), "virtual: its elements lie in other data sets",
                copy);
        require(H5Pget_external_count(how) == 0, where(dataset), "external: its elements lie in other files", copy);
        H5D_space_status_t status = H5D_SPACE_STATUS_ERROR;
        H5D_fill_value_t fill = H5D_FILL_VALUE_ERROR;
        H5D_fill_time_t filled = H5D_FILL_TIME_ERROR;
        H5Dget_space_status(d.dataset.get(), &status);
        H5Pfill_value_defined(how, &fill);
        H5Pget_fill_time(how, &filled);
        require(d.extents.size() == 0 || status == H5D_SPACE_STATUS_ALLOCATED ||
                    (fill != H5D_FILL_VALUE_UNDEFINED && filled != H5D_FILL_TIME_NEVER),
                where(dataset), "not all of it was written, and it has no fill value");
        // The library does not always notice when an array kept in one piece is shorter than its extents say.
        const std::uint64_t stored = H5Dget_storage_size(d.dataset.get()),
                            expected = static_cast<std::uint64_t>(d.extents.size()) * H5Tget_size(d.type.get());
        require(H5Pget_layout(how) == H5D_CHUNKED || status == H5D_SPACE_STATUS_NOT_ALLOCATED || stored == expected,
                where(dataset), stored, " bytes are stored, ", d.extents, " elements take ", expected,
                ": damaged file?");
    }

    // Fill values take no room in the file: a few bytes may ask for all memory.
    template <class T>
    tensor<T> room_for(const std::string& dataset, const cairn::shape& extents, memory_category use) const {
        const std::uint64_t bytes = static_cast<std::uint64_t>(extents.size()) * sizeof(T);
        require(bytes <= half_of_memory(), where(dataset), bytes, " bytes of shape ", extents,
                " are more than half of the machine's memory: damaged header? Read fewer of them");
        return tensor<T>(extents, use);
    }

    using box_begin = std::optional<std::array<index_t, cairn::shape::max_rank>>;  // none: all of the data set

    template <class T>
    void read_into(const opened& d, const std::string& dataset, tensor<T>& t, const box_begin& begin) const {
        if (t.size() == 0) return;
        if constexpr (std::is_integral_v<T>) {
            require(H5Tget_class(d.type.get()) != H5T_FLOAT, where(dataset),
                    "holds floating-point numbers, integers are asked for");
            if (H5Tget_sign(d.type.get()) == H5T_SGN_NONE)
                read_fitting<std::uint64_t>(d, dataset, t, begin);
            else
                read_fitting<std::int64_t>(d, dataset, t, begin);
        } else if (H5Tget_class(d.type.get()) == H5T_FLOAT && H5Tget_size(d.type.get()) > sizeof(float)) {
            read_fitting<double>(d, dataset, t, begin);
        } else {
            read_selected(d, dataset, t, begin);
        }
    }

    // By way of the widest integers of its sign, or of doubles: the library would clip in silence.
    template <class Wide, class T>
    void read_fitting(const opened& d, const std::string& dataset, tensor<T>& t, const box_begin& begin) const {
        if constexpr (std::is_same_v<T, Wide>) {
            read_selected(d, dataset, t, begin);
        } else {
            tensor<Wide> wide = room_for<Wide>(dataset, t.shape(), memory_category::workspace);
            read_selected(d, dataset, wide, begin);
            const std::string name = concat(name_, ": data set '", dataset, "'");
            for (index_t i = 0; i < t.size(); ++i) t[i] = element_as<T>(wide[i], i, name);
        }
    }

    template <class T>
    void read_selected(const opened& d, const std::string& dataset, tensor<T>& t, const box_begin& begin) const {
        handle memory, file;
        if (begin && t.rank() > 0) {
            std::array<hsize_t, cairn::shape::max_rank> start{}, count{};
            for (int axis = 0; axis < t.rank(); ++axis) {
                start[static_cast<std::size_t>(axis)] = static_cast<hsize_t>((*begin)[static_cast<std::size_t>(axis)]);
                count[static_cast<std::size_t>(axis)] = static_cast<hsize_t>(t.extent(axis));
            }
            file = handle(H5Dget_space(d.dataset.get()), &H5Sclose);
            memory = handle(H5Screate_simple(t.rank(), count.data(), nullptr), &H5Sclose);
            require(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) >= 0,
                    where(dataset), detail::hdf5_reason());
        }
        const herr_t result = H5Dread(d.dataset.get(), native<T>(), memory.valid() ? memory.get() : H5S_ALL,
                                      file.valid() ? file.get() : H5S_ALL, H5P_DEFAULT, t.data());
        if (result >= 0) return;
        const std::string why = detail::hdf5_reason(), filter = missing_filter(d);
        require(filter.empty(), where(dataset), "compressed by the filter ", filter,
                ", which this HDF5 library does not have; where it is known, write a copy with another: h5repack -f "
                "GZIP=4 ",
                name_, " OUT.h5");
        fail(where(dataset), "read error: ", why, ": truncated or damaged file?");
    }

    // The first filter of a data set that the library does not have, "lzf (32000)"; empty where it has all.
    static std::string missing_filter(const opened& d) {
        const handle how(H5Dget_create_plist(d.dataset.get()), &H5Pclose);
        for (int i = 0; i < H5Pget_nfilters(how.get()); ++i) {
            std::size_t values = 0;
            std::array<char, 64> name{};
            const H5Z_filter_t id = H5Pget_filter2(how.get(), static_cast<unsigned>(i), nullptr, &values, nullptr,
                                                   name.size(), name.data(), nullptr);
            if (id >= 0 && H5Zfilter_avail(id) <= 0)
                return concat(name[0] != 0 ? name.data() : "number", " (", id, ')');
        }
        return {};
    }

    template <class T>
    static hid_t native() {
        if constexpr (std::is_same_v<T, float>)
            return H5T_NATIVE_FLOAT;
        else if constexpr (std::is_same_v<T, double>)
            return H5T_NATIVE_DOUBLE;
        else if constexpr (std::is_same_v<T, std::uint64_t>)
            return H5T_NATIVE_UINT64;
        else {
            static_assert(std::is_same_v<T, std::int64_t>, "hdf5: float, double and integers of up to 64 bits");
            return H5T_NATIVE_INT64;
        }
    }

    std::string name_;
    handle file_;
};

#else

class hdf5_file {
public:
    explicit hdf5_file(const std::filesystem::path& path) {
        fail(path.string(),
             ": Cairn was built without HDF5; install libhdf5-dev and build again, or convert the file to .npy");
    }
    std::vector<std::string> datasets() const { return {}; }
    cairn::shape shape(const std::string&) const { return {}; }
    bool holds_integers(const std::string&) const { return false; }
    template <class T>
    tensor<T> read(const std::string&, memory_category = memory_category::data) const {
        return {};
    }
    template <class T>
    tensor<T> read_rows(const std::string&, index_t, index_t, memory_category = memory_category::data) const {
        return {};
    }
    template <class T>
    tensor<T> read_box(const std::string&, std::span<const index_t>, const cairn::shape&,
                       memory_category = memory_category::data) const {
        return {};
    }
};

#endif

}  // namespace cairn
