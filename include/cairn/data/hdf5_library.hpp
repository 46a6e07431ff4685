#pragma once
// The HDF5 library: its identifiers, its lock and its errors. The only file that includes it.

#include <array>
#include <mutex>
#include <string>
#include <utility>

#if !defined(CAIRN_HAS_HDF5) && __has_include(<hdf5.h>)
#define CAIRN_HAS_HDF5 1
#endif
#if CAIRN_HAS_HDF5
#include <hdf5.h>
#endif

#if CAIRN_HAS_HDF5

namespace cairn::detail {

// An identifier of the library and how to close it.
class hdf5_handle {
public:
    hdf5_handle() = default;
    hdf5_handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
    hdf5_handle(hdf5_handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    hdf5_handle& operator=(hdf5_handle&& other) noexcept {
        if (id_ >= 0) close_(id_);
        id_ = std::exchange(other.id_, -1);
        close_ = other.close_;
        return *this;
    }
    ~hdf5_handle() {
        if (id_ >= 0) close_(id_);
    }
    hid_t get() const { return id_; }
    bool valid() const { return id_ >= 0; }

private:
    hid_t id_ = -1;
    herr_t (*close_)(hid_t) = nullptr;
};

// Holds the library, and keeps it from printing its error stack, which we report ourselves.
class hdf5_session {
public:
    hdf5_session() : lock_(mutex()) {
        H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
        H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    }
    ~hdf5_session() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
    hdf5_session(const hdf5_session&) = delete;
    hdf5_session& operator=(const hdf5_session&) = delete;

private:
    static std::recursive_mutex& mutex() {
        static std::recursive_mutex m;
        return m;
    }
    std::scoped_lock<std::recursive_mutex> lock_;
    H5E_auto2_t print_ = nullptr;
    void* data_ = nullptr;
};

// The innermost description on the library's error stack: what really went wrong.
inline std::string hdf5_reason() {
    std::string text = "no reason given";
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned depth, const H5E_error2_t* e, void* out) -> herr_t {
            if (depth == 0 && e->desc) *static_cast<std::string*>(out) = e->desc;
            return 0;
        },
        &text);
    return text;
}

/// Type of a data set's elements.
inline const char* name_of(H5T_class_t kind) {
    constexpr std::array names{"integer",  "float",     "time",        "string",          "bit field", "opaque",
                               "compound", "reference", "enumeration", "variable length", "array"};
    const auto i = static_cast<std::size_t>(kind);
    return i < names.size() ? names[i] : "unknown";
}

}  // namespace cairn::detail

#endif
