#pragma once
// Small netCDF files of the classic kinds, written from the specification by plain loops: independent of the reader.
#include "data/writers.hpp"

namespace cairn::test {

struct netcdf_attribute_content {
    std::string name;
    std::uint32_t type = 2;
    bytes values;  // big-endian
};

struct netcdf_variable_content {
    std::string name;
    std::vector<std::uint32_t> dimensions;
    std::uint32_t type = 5;
    bytes values;  // of all records, big-endian
    std::vector<netcdf_attribute_content> attributes{};
};

struct netcdf_content {
    int version = 1;
    std::vector<std::pair<std::string, std::uint64_t>> dimensions;  // 0: the unlimited one
    std::uint64_t records = 0;
    std::vector<netcdf_attribute_content> attributes;
    std::vector<netcdf_variable_content> variables;
    bool streaming = false;  // the number of records is not told
};

/// Values of an element type, by its code: of T, big-endian.
template <class T>
bytes big_endian(const std::vector<T>& values) {
    return elements_of(values, std::endian::big);
}

inline netcdf_attribute_content text_attribute(const std::string& name, const std::string& text) {
    return {name, 2, bytes(text.begin(), text.end())};
}

/// The file; `first_bytes` receives where each variable begins in it.
inline bytes netcdf_bytes(const netcdf_content& c, std::vector<std::uint64_t>* first_bytes = nullptr) {
    constexpr auto big = std::endian::big;
    constexpr std::array<std::size_t, 12> width{0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
    std::vector<std::uint64_t> begin(c.variables.size()), row(c.variables.size());
    std::vector<bool> recorded(c.variables.size());
    std::size_t recording = 0;
    for (std::size_t i = 0; i < c.variables.size(); ++i) {
        const auto& v = c.variables[i];
        recorded[i] = !v.dimensions.empty() && c.dimensions[v.dimensions[0]].second == 0;
        recording += recorded[i];
        row[i] = width[v.type];
        for (const std::uint32_t d : v.dimensions) row[i] *= std::max<std::uint64_t>(c.dimensions[d].second, 1);
    }
    const auto pad = [](bytes& out) {
        while (out.size() % 4) out.push_back(0);
    };
    const auto header = [&] {
        bytes out{'C', 'D', 'F', static_cast<std::uint8_t>(c.version)};
        const auto four = [&](std::uint64_t n) { append_number(out, static_cast<std::uint32_t>(n), big); };
        const auto count = [&](std::uint64_t n) {
            if (c.version == 5)
                append_number(out, n, big);
            else
                four(n);
        };
        const auto name = [&](const std::string& text) {
            count(text.size());
            append(out, text);
            pad(out);
        };
        const auto list = [&](std::uint32_t tag, std::size_t n) {
            four(n ? tag : 0);
            count(n);
        };
        const auto attributes = [&](const std::vector<netcdf_attribute_content>& all) {
            list(12, all.size());
            for (const auto& a : all) {
                name(a.name);
                four(a.type);
                count(a.values.size() / width[a.type]);
                append(out, a.values);
                pad(out);
            }
        };
        count(c.streaming ? ~std::uint64_t{0} : c.records);
        list(10, c.dimensions.size());
        for (const auto& [text, length] : c.dimensions) {
            name(text);
            count(length);
        }
        attributes(c.attributes);
        list(11, c.variables.size());
        for (std::size_t i = 0; i < c.variables.size(); ++i) {
            const auto& v = c.variables[i];
            name(v.name);
            count(v.dimensions.size());
            for (const std::uint32_t d : v.dimensions) count(d);
            attributes(v.attributes);
            four(v.type);
            count((row[i] + 3) / 4 * 4);
            if (c.version == 1)
                four(begin[i]);
            else
                append_number(out, begin[i], big);
        }
        return out;
    };
    std::uint64_t at = header().size();
    for (const bool of_records : {false, true})
        for (std::size_t i = 0; i < c.variables.size(); ++i)
            if (recorded[i] == of_records) {
                begin[i] = at;
                at += of_records && recording == 1 ? row[i] : (row[i] + 3) / 4 * 4;
            }
    bytes out = header();
    for (std::size_t i = 0; i < c.variables.size(); ++i)
        if (!recorded[i]) {
            append(out, c.variables[i].values);
            pad(out);
        }
    for (std::uint64_t r = 0; r < c.records; ++r)
        for (std::size_t i = 0; i < c.variables.size(); ++i)
            if (recorded[i]) {
                append(out, std::span(c.variables[i].values).subspan(r * row[i], row[i]));
                if (recording > 1) pad(out);
            }
    if (first_bytes) *first_bytes = begin;
    return out;
}

/// A file with something of everything.
inline netcdf_content small_netcdf(int version = 1) {
    netcdf_content c{.version = version,
                     .dimensions = {{"time", 0}, {"y", 2}, {"x", 3}},
                     .records = 2,
                     .attributes = {text_attribute("title", "small")},
                     .variables = {}};
    c.variables.push_back({"x", {2}, 6, big_endian<double>({0, 0.5, 1})});
    c.variables.push_back({"t",
                           {0, 1, 2},
                           3,
                           big_endian<std::int16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1, 12}),
                           {{"scale_factor", 6, big_endian<double>({0.1})},
                            {"add_offset", 6, big_endian<double>({273.15})},
                            {"_FillValue", 3, big_endian<std::int16_t>({-1})},
                            {"valid_range", 3, big_endian<std::int16_t>({2, 10})}}});
    c.variables.push_back({"flag", {0, 2}, 1, {1, 2, 3, 4, 5, 6}, {{"missing_value", 1, {2, 5}}}});
    c.variables.push_back({"name", {1, 2}, 2, bytes{'a', 'b', 'c', 'd', 'e', 'f'}});
    c.variables.push_back({"one", {}, 5, big_endian<float>({7.5f})});
    if (version == 5) c.variables.push_back({"wide", {1}, 11, big_endian<std::uint64_t>({~std::uint64_t{0}, 1})});
    return c;
}

}  // namespace cairn::test
