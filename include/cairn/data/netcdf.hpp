#pragma once
// netCDF, the format of climate fields: classic, 64-bit offset and 64-bit data (data/netcdf_classic.hpp), and netCDF-4,
// which is HDF5 (data/netcdf4.hpp). Variables by name, as they are stored or in their own units with what is missing.
// Packed and missing values: NetCDF Users Guide, Appendix A, "Attribute Conventions". Tested against Python's netCDF4.

#include <cairn/data/netcdf4.hpp>
#include <cairn/data/netcdf_classic.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

namespace cairn {

/// A variable in its own units.
template <class T>
struct netcdf_field {
    tensor<T> values;              // 0 where missing, so that values · (1 − missing) and its sums are finite
    tensor<std::uint8_t> missing;  // of the same shape: 1 where there is no value, else 0
};

class netcdf_file {
public:
    /// Reads a file's description, and of all but netCDF-4 the file. Throws on what is no netCDF file, is truncated or
    /// damaged, naming the byte.
    explicit netcdf_file(const std::filesystem::path& path) : name_(path.string()) {
        if (detail::has_hdf5_signature(path))
            hdf5_ = std::make_unique<detail::netcdf4_file>(path);
        else
            classic_.emplace(path);
    }
    /// A file in memory, called `name`; not netCDF-4.
    netcdf_file(std::vector<std::uint8_t> bytes, std::string name) : name_(std::move(name)) {
        classic_.emplace(std::move(bytes), name_);
    }

    const std::vector<netcdf_dimension>& dimensions() const { return description().dimensions; }
    const std::vector<netcdf_attribute>& attributes() const { return description().attributes; }
    const std::vector<netcdf_variable>& variables() const { return description().variables; }

    /// What is known of a variable. Throws naming those that are there. Of netCDF-4, those of groups are GROUP/NAME,
    /// and those that hold no numbers are left out.
    const netcdf_variable& variable(const std::string& name) const { return variables()[number_of(name)]; }

    /// Extents of a variable. Throws on more than six axes.
    cairn::shape shape(const std::string& name) const { return variable(name).shape(name_); }

    /// All elements as they are stored, row-major, as T; of text its bytes. Throws when one does not fit (element_as).
    template <class T>
    tensor<T> read(const std::string& name, memory_category use = memory_category::data) const {
        const std::size_t number = number_of(name);
        return classic_ ? classic_->read<T>(number, use) : hdf5_->read<T>(number, use);
    }

    /// All values in their own units, stored · scale_factor + add_offset (in double, rounded after each), and which of
    /// them are missing: what equals _FillValue, a missing_value or, without _FillValue, the fill value of its type
    /// (types of one byte have none); what lies outside valid_range, valid_min or valid_max; NaN. These attributes are
    /// in stored units; the valid ones of a packed variable of integers, where they are no integers, in its own. Signed
    /// integers with the attribute _Unsigned = "true" are unsigned ones. T: float or double.
    /// Throws on text, on attributes that are no numbers or too many, and on values that T does not hold.
    template <class T>
    netcdf_field<T> read_unpacked(const std::string& name, memory_category use = memory_category::data) const {
        const netcdf_variable& v = variable(name);
        const std::string context = concat(name_, ": variable '", name, "'");
        require(v.type != netcdf_type::text, context, ": holds text, not numbers; read() gives its bytes");
        const netcdf_attribute* mark = v.attribute("_Unsigned");
        const bool as_unsigned = mark && mark->type == netcdf_type::text && lower_case(mark->text()) == "true";
        netcdf_field<T> field;
        visit_netcdf(v.type, [&](auto example) {
            using Stored = decltype(example);
            const tensor<Stored> stored = read<Stored>(name, memory_category::workspace);
            if constexpr (std::is_integral_v<Stored> && std::is_signed_v<Stored>)
                if (as_unsigned) {
                    using Unsigned = std::make_unsigned_t<Stored>;
                    const auto* first = reinterpret_cast<const Unsigned*>(stored.data());
                    field = unpack<T, Unsigned>(v, {first, static_cast<std::size_t>(stored.size())}, context, use);
                    return;
                }
            field = unpack<T, Stored>(v, {stored.data(), static_cast<std::size_t>(stored.size())}, context, use);
        });
        return field;
    }

private:
    const netcdf_description& description() const { return classic_ ? classic_->description() : hdf5_->description(); }

    std::size_t number_of(const std::string& name) const {
        std::vector<std::string> there;
        for (std::size_t i = 0; i < variables().size(); ++i) {
            if (variables()[i].name == name) return i;
            there.push_back(variables()[i].name);
        }
        fail(name_, ": no variable '", name, "'; there are: ", there.empty() ? "none" : listed(there));
    }

    template <class T, class Stored>
    static netcdf_field<T> unpack(const netcdf_variable& v, std::span<const Stored> stored, const std::string& context,
                                  memory_category use);

    std::string name_;
    std::optional<netcdf_classic_file> classic_;  // or else
    std::unique_ptr<detail::netcdf4_file> hdf5_;
};

namespace detail {

/// A number of an attribute as one of the elements, or none that is equal to it. Unsigned elements may be signed ones
/// of the file, as the attribute's then are.
template <class Stored, class Number>
std::optional<Stored> as_stored(Number value) {
    if constexpr (std::is_floating_point_v<Stored>)
        return static_cast<Stored>(value);
    else if constexpr (std::is_floating_point_v<Number>) {
        const bool fits = value >= static_cast<Number>(std::numeric_limits<Stored>::min()) &&
                          value < std::ldexp(Number{1}, std::numeric_limits<Stored>::digits) &&
                          value == std::trunc(value);
        return fits ? std::optional(static_cast<Stored>(value)) : std::nullopt;
    } else if constexpr (std::is_unsigned_v<Stored> && std::is_signed_v<Number> && sizeof(Number) == sizeof(Stored))
        return static_cast<Stored>(value);
    else
        return std::in_range<Stored>(value) ? std::optional(static_cast<Stored>(value)) : std::nullopt;
}

/// What fills elements that were never written (netcdf.h), of types of more than one byte.
template <class T>
std::optional<T> netcdf_fill() {
    if constexpr (sizeof(T) == 1)
        return {};
    else if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(0x1.ep+122);
    else {
        constexpr T inner = sizeof(T) == 8 ? 1 : 0;  // of 64-bit integers it is one further from the end
        return static_cast<T>(std::is_signed_v<T> ? std::numeric_limits<T>::min() + 1 + inner
                                                  : std::numeric_limits<T>::max() - inner);
    }
}

/// An attribute that is to be `count` numbers, no NaN (0: any number of any), or nullptr.
inline const netcdf_attribute* netcdf_numbers(const netcdf_variable& v, const char* name, std::size_t count,
                                              const std::string& context) {
    const netcdf_attribute* a = v.attribute(name);
    if (!a) return nullptr;
    require(a->type != netcdf_type::text, context, ": attribute ", name, " is the text '", a->text().substr(0, 40),
            "' where numbers are due; read() gives the stored elements");
    const std::size_t found = a->bytes.size() / size_of(a->type);
    require(count == 0 || found == count, context, ": attribute ", name, " has ", found, " numbers, ", count,
            " expected; read() gives the stored elements");
    a->visit_numbers([&](auto number) {
        require(count == 0 || !std::isnan(static_cast<double>(number)), context, ": attribute ", name,
                " is NaN; read() gives the stored elements");
    });
    return a;
}

}  // namespace detail

template <class T, class Stored>
netcdf_field<T> netcdf_file::unpack(const netcdf_variable& v, std::span<const Stored> stored,
                                    const std::string& context, memory_category use) {
    static_assert(std::is_floating_point_v<T>, "netcdf: values are float or double");
    const auto single = [&](const char* name, double otherwise) {
        double value = otherwise;
        if (const auto* a = detail::netcdf_numbers(v, name, 1, context))
            a->visit_numbers([&](auto number) { value = static_cast<double>(number); });
        require(std::isfinite(value), context, ": attribute ", name, " is ", value,
                "; read() gives the stored elements");
        return value;
    };
    const double scale = single("scale_factor", 1), offset = single("add_offset", 0);
    const bool packed = v.attribute("scale_factor") || v.attribute("add_offset");
    // Two loops: in one, a compiler may round product and sum together.
    std::vector<double> values(stored.size());
    for (std::size_t i = 0; i < stored.size(); ++i) values[i] = static_cast<double>(stored[i]) * scale;
    if (packed)
        for (double& value : values) value += offset;

    std::vector<Stored> marks;
    for (const char* name : {"_FillValue", "missing_value"})
        if (const auto* a = detail::netcdf_numbers(v, name, 0, context))
            a->visit_numbers([&](auto number) {
                if (const auto mark = detail::as_stored<Stored>(number)) marks.push_back(*mark);
            });
    if (!v.attribute("_FillValue"))
        visit_netcdf(v.type, [&](auto example) {
            if (const auto fill = detail::netcdf_fill<decltype(example)>()) marks.push_back(static_cast<Stored>(*fill));
        });
    std::erase_if(marks, [](Stored mark) { return std::isnan(static_cast<double>(mark)); });
    std::sort(marks.begin(), marks.end());
    netcdf_field<T> field{tensor<T>(v.shape(context), use), tensor<std::uint8_t>::zeros(v.shape(context), use)};
    std::uint8_t* const missing = field.missing.data();
    for (std::size_t i = 0; i < stored.size(); ++i)
        missing[i] = std::isnan(values[i]) || std::binary_search(marks.begin(), marks.end(), stored[i]);

    // Marks what lies below the number (above, where `sign` is -1).
    const auto mark_below = [&](auto number, int sign) {
        using Number = decltype(number);
        const auto mark = [&](auto value_of, auto bound) {
            for (std::size_t i = 0; i < stored.size(); ++i)
                if (sign > 0 ? value_of(i) < bound : value_of(i) > bound) missing[i] = 1;
        };
        if (packed && std::is_floating_point_v<Number> && std::is_integral_v<Stored>)
            mark([&](std::size_t i) { return values[i]; }, static_cast<double>(number));
        else if (const auto bound = detail::as_stored<Stored>(number))
            mark([&](std::size_t i) { return stored[i]; }, *bound);
        else
            mark([&](std::size_t i) { return static_cast<double>(stored[i]); }, static_cast<double>(number));
    };
    const auto mark_outside = [&](const char* name, std::size_t count, std::initializer_list<int> signs) {
        const auto* sign = signs.begin();
        if (const auto* a = detail::netcdf_numbers(v, name, count, context))
            a->visit_numbers([&](auto number) { mark_below(number, *sign++); });
    };
    mark_outside("valid_min", 1, {1});
    mark_outside("valid_max", 1, {-1});
    mark_outside("valid_range", 2, {1, -1});

    for (std::size_t i = 0; i < stored.size(); ++i) {
        const auto at = static_cast<index_t>(i);
        if (missing[i]) {
            field.values[at] = 0;
            continue;
        }
        require(std::isfinite(values[i]) || !std::isfinite(static_cast<double>(stored[i])), context, ": element ", i,
                " is ", +stored[i], ", too large by its scale_factor");
        field.values[at] = element_as<T>(values[i], at, context);
    }
    return field;
}

}  // namespace cairn
