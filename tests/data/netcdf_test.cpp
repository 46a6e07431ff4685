#include "catch.hpp"
#include "data/netcdf_files.hpp"

#include <cairn/data/netcdf.hpp>

#include <cmath>
#include <limits>

namespace cairn::test {
namespace netcdf_tests {

using Catch::Matchers::Contains;
constexpr auto big = std::endian::big;

std::string refusal(const bytes& file) {
    return message_of([&] { netcdf_file(file, "x.nc"); });
}
std::string refusal(const netcdf_content& content) { return refusal(netcdf_bytes(content)); }

// Reads a variable of two axes (rows, 3), plain and of records, of each kind of file.
template <class T>
void require_type(std::uint32_t code, const std::vector<T>& values) {
    REQUIRE(values.size() == 6);
    for (const int version : {1, 2, 5}) {
        if (version < 5 && code > 6) continue;
        for (const std::size_t others : {0u, 1u, 2u})  // variables of records beside it: alone, rows are not padded
            for (const bool of_records : {false, true}) {
                netcdf_content c{.version = version,
                                 .dimensions = {{"time", 0}, {"y", 2}, {"x", 3}},
                                 .records = 2,
                                 .attributes = {},
                                 .variables = {}};
                for (std::size_t i = 0; i < others; ++i)
                    c.variables.push_back({concat("other", i), {0}, 2, bytes{'a', 'b'}});
                c.variables.push_back({"v", {of_records ? 0u : 1u, 2}, code, big_endian(values)});
                const netcdf_file file(netcdf_bytes(c), "x.nc");
                REQUIRE(file.shape("v") == shape{2, 3});
                REQUIRE(file.variable("v").type == static_cast<netcdf_type>(code));
                REQUIRE(file.dimensions()[0].length == 2);
                REQUIRE(file.dimensions()[0].unlimited);
                const auto t = file.read<T>("v");
                for (index_t i = 0; i < 6; ++i) REQUIRE(t[i] == values[static_cast<std::size_t>(i)]);
                if (others) REQUIRE(file.read<std::uint8_t>("other0")[1] == 'b');
            }
    }
}

TEST_CASE("netcdf: every type, in every kind of file, with and without records", "[netcdf]") {
    require_type<std::int8_t>(1, {0, 1, -1, 127, -128, 5});
    require_type<std::uint8_t>(2, {'a', 'b', 'c', '\0', 'e', 'f'});
    require_type<std::int16_t>(3, {0, 1, -2, 300, -32768, 32767});
    require_type<std::int32_t>(4, {0, 1, -2, 70000, std::numeric_limits<std::int32_t>::min(), 5});
    require_type<float>(5, {0, 1.5f, -2, 1e30f, 1e-42f, std::numeric_limits<float>::infinity()});
    require_type<double>(6, {0, 1.1, -2, 1e300, -0.25, 5});
    require_type<std::uint8_t>(7, {0, 1, 2, 127, 128, 255});
    require_type<std::uint16_t>(8, {0, 1, 2, 300, 32768, 65535});
    require_type<std::uint32_t>(9, {0, 1, 2, 70000, 4294967295, 5});
    require_type<std::int64_t>(10, {0, 1, -2, std::int64_t{1} << 60, std::numeric_limits<std::int64_t>::min(), 5});
    require_type<std::uint64_t>(11, {0, 1, 2, ~std::uint64_t{0}, std::uint64_t{1} << 63, 5});
}

TEST_CASE("netcdf: description, scalars, text, streams, files", "[netcdf]") {
    const temporary_folder folder;
    for (const int version : {1, 2, 5})
        for (const bool streaming : {false, true}) {
            netcdf_content c = small_netcdf(version);
            c.streaming = streaming;
            bytes raw = netcdf_bytes(c);
            if (streaming) raw.pop_back();  // the last record lacks its padding
            const netcdf_file file(folder.write("a.nc", raw));
            REQUIRE(file.attributes().size() == 1);
            REQUIRE(file.attributes()[0].text() == "small");
            REQUIRE(file.variables().size() == c.variables.size());
            REQUIRE(file.shape("t") == shape{2, 2, 3});
            REQUIRE(file.variable("t").dimensions == std::vector<std::size_t>{0, 1, 2});
            REQUIRE(file.read<double>("x")[1] == 0.5);
            REQUIRE(file.read<std::int32_t>("t")[11] == 12);
            REQUIRE(file.read<int>("flag")[5] == 6);
            REQUIRE(file.shape("one") == shape{});
            REQUIRE(file.read<float>("one")[0] == 7.5f);
            REQUIRE(file.read<std::uint8_t>("name")[5] == 'f');
            std::vector<double> numbers;
            file.variable("t").attribute("valid_range")->visit_numbers([&](auto n) {
                numbers.push_back(static_cast<double>(n));
            });
            REQUIRE(numbers == std::vector<double>{2, 10});
            REQUIRE(file.variable("t").attribute("units") == nullptr);
        }
    // A stream cut within its third record has two; without records, variables of records are empty.
    netcdf_content c = small_netcdf();
    c.streaming = true;
    bytes raw = netcdf_bytes(c);
    raw.resize(raw.size() + 8);
    REQUIRE(netcdf_file(raw, "x.nc").shape("t") == shape{2, 2, 3});
    c.records = 0;
    for (const bool streaming : {false, true}) {
        c.streaming = streaming;
        const netcdf_file none(netcdf_bytes(c), "x.nc");
        REQUIRE(none.shape("t") == shape{0, 2, 3});
        REQUIRE(none.read<float>("t").size() == 0);
        REQUIRE(none.read_unpacked<float>("t").missing.size() == 0);
    }
    REQUIRE(netcdf_file(netcdf_bytes({.version = 1, .dimensions = {}, .attributes = {}, .variables = {}}), "x.nc")
                .variables()
                .empty());
}

// One variable of six elements with attributes, unpacked; "-" where missing.
template <class T>
std::string unpacked(std::uint32_t type, const std::vector<T>& values,
                     std::vector<netcdf_attribute_content> attributes) {
    netcdf_content c{.version = 5, .dimensions = {{"x", values.size()}}, .attributes = {}, .variables = {}};
    c.variables.push_back({"v", {0}, type, big_endian(values), std::move(attributes)});
    const netcdf_file file(netcdf_bytes(c), "x.nc");
    const auto f = file.read_unpacked<double>("v");
    const auto single = file.read_unpacked<float>("v");
    std::string all;
    for (index_t i = 0; i < f.values.size(); ++i) {
        if (f.missing[i]) REQUIRE(f.values[i] == 0);
        REQUIRE(single.missing[i] == f.missing[i]);
        REQUIRE(single.values[i] == static_cast<float>(f.values[i]));
        all += (i ? " " : "") + (f.missing[i] ? "-" : concat(f.values[i]));
    }
    return all;
}

TEST_CASE("netcdf: values in their own units, and what is missing", "[netcdf]") {
    const auto f64 = [](std::vector<double> v) { return big_endian(v); };
    const auto f32 = [](std::vector<float> v) { return big_endian(v); };
    const auto i16 = [](std::vector<std::int16_t> v) { return big_endian(v); };
    const std::vector<std::int16_t> shorts{1, -1, 3, -32767, 32767, 0};
    REQUIRE(unpacked(3, shorts, {}) == "1 -1 3 - 32767 0");
    REQUIRE(unpacked(3, shorts, {{"_FillValue", 3, i16({-1})}}) == "1 - 3 -32767 32767 0");
    REQUIRE(unpacked(3, shorts, {{"missing_value", 3, i16({0, 3})}}) == "1 -1 - - 32767 -");
    REQUIRE(unpacked(3, shorts, {{"missing_value", 6, f64({-1, 0.5, 1e9, NAN})}}) == "1 - 3 - 32767 0");
    REQUIRE(unpacked(3, shorts, {{"scale_factor", 6, f64({0.5})}, {"add_offset", 6, f64({10})}}) ==
            "10.5 9.5 11.5 - 16393.5 10");
    REQUIRE(unpacked(3, shorts, {{"add_offset", 3, i16({10})}}) == "11 9 13 - 32777 10");
    // Valid values: in stored units, but fractions of a packed variable in its own.
    REQUIRE(unpacked(3, shorts, {{"valid_min", 3, i16({1})}, {"scale_factor", 5, f32({0.5f})}}) ==
            "0.5 - 1.5 - 16383.5 -");
    REQUIRE(unpacked(3, shorts, {{"valid_min", 5, f32({1})}, {"scale_factor", 5, f32({0.5f})}}) ==
            "- - 1.5 - 16383.5 -");
    REQUIRE(unpacked(3, shorts, {{"valid_max", 3, i16({3})}}) == "1 -1 3 - - 0");
    REQUIRE(unpacked(3, shorts, {{"valid_range", 3, i16({0, 2})}}) == "1 - - - - 0");
    REQUIRE(unpacked(3, shorts, {{"valid_range", 6, f64({0.5, 3.5})}}) == "1 - 3 - - -");
    REQUIRE(unpacked(3, shorts, {{"valid_range", 6, f64({-1e9, 1e9})}}) == "1 -1 3 - 32767 0");
    // Signed ones as unsigned ones, their attributes too.
    REQUIRE(unpacked<std::int8_t>(
                1, {1, -1, -128, 5, -2, 0},
                {text_attribute("_Unsigned", "true"), {"_FillValue", 1, bytes{0xff}}, {"valid_max", 1, bytes{0xfd}}}) ==
            "1 - 128 5 - 0");
    REQUIRE(unpacked(3, shorts, {text_attribute("_Unsigned", "True")}) == "1 65535 3 - 32767 0");
    REQUIRE(unpacked<std::int8_t>(1, {-127, 0}, {}) == "-127 0");  // one byte: nothing fills it unless told
    REQUIRE(unpacked<std::uint8_t>(7, {255, 0}, {}) == "255 0");
    REQUIRE(unpacked<std::uint16_t>(8, {65535, 65534}, {}) == "- 65534");
    REQUIRE(unpacked<std::int32_t>(4, {-2147483647, 5}, {}) == "- 5");
    REQUIRE(unpacked<std::uint32_t>(9, {4294967295, 5}, {}) == "- 5");
    REQUIRE(unpacked<std::int64_t>(10, {-9223372036854775806, 5}, {}) == "- 5");
    REQUIRE(unpacked<std::uint64_t>(11, {18446744073709551614u, 5}, {}) == "- 5");
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    REQUIRE(unpacked<float>(5, {1, nan, inf, 9.96920997e36f, -2, 1e20f}, {}) == "1 - inf - -2 1e+20");
    REQUIRE(unpacked<float>(5, {1, nan, inf, 9.96920997e36f, -2, 1e20f},
                            {{"_FillValue", 5, f32({nan})}, {"missing_value", 6, f64({1e20})}}) ==
            "1 - inf 9.96921e+36 -2 -");
    REQUIRE(unpacked<double>(6, {9.9692099683868690e+36, 2}, {{"valid_max", 6, f64({2})}}) == "- 2");
    // 64-bit integers are compared as such, not by way of doubles.
    const std::int64_t large = (std::int64_t{1} << 53) + 1;
    REQUIRE(unpacked<std::int64_t>(10, {large, 4}, {{"missing_value", 10, big_endian<std::int64_t>({large - 1})}}) ==
            "9.0072e+15 4");
    REQUIRE(unpacked<std::int64_t>(10, {large, 4}, {{"valid_max", 10, big_endian<std::int64_t>({large - 1})}}) ==
            "- 4");
    // Product and sum are rounded one after the other, whatever the compiler may join.
    netcdf_content c{.version = 1, .dimensions = {{"x", 1}}, .attributes = {}, .variables = {}};
    c.variables.push_back({"v",
                           {0},
                           4,
                           big_endian<std::int32_t>({3}),
                           {{"scale_factor", 6, f64({0.1})}, {"add_offset", 6, f64({-0.3})}}});
    REQUIRE(netcdf_file(netcdf_bytes(c), "x.nc").read_unpacked<double>("v").values[0] == 0x1p-54);
}

TEST_CASE("netcdf: attributes and values that do not unpack say so", "[netcdf]") {
    const auto message = [](std::vector<netcdf_attribute_content> attributes, std::uint32_t type = 6) {
        netcdf_content c{.version = 1, .dimensions = {{"x", 2}}, .attributes = {}, .variables = {}};
        c.variables.push_back(
            {"v", {0}, type, type == 2 ? bytes{'a', 'b'} : big_endian<double>({1, 1e300}), std::move(attributes)});
        const netcdf_file file(netcdf_bytes(c), "x.nc");
        return message_of([&] { file.read_unpacked<float>("v"); });
    };
    const double inf = std::numeric_limits<double>::infinity();
    REQUIRE_THAT(message({}), Contains("x.nc: variable 'v': element 1 is 1e+300, too large"));
    REQUIRE_THAT(message({{"scale_factor", 6, big_endian<double>({1e10})}}),
                 Contains("element 1 is 1e+300, too large"));
    REQUIRE(message({{"scale_factor", 6, big_endian<double>({1e-290})}}).empty());
    REQUIRE_THAT(message({{"scale_factor", 6, big_endian<double>({1, 2})}}),
                 Contains("scale_factor has 2 numbers, 1 expected"));
    REQUIRE_THAT(message({{"add_offset", 6, big_endian<double>({inf})}}), Contains("add_offset is inf"));
    REQUIRE_THAT(message({{"valid_range", 6, big_endian<double>({1})}}), Contains("valid_range has 1 numbers, 2 exp"));
    REQUIRE_THAT(message({{"valid_min", 6, big_endian<double>({NAN})}}), Contains("valid_min is NaN"));
    REQUIRE(message({{"valid_max", 6, big_endian<double>({5})}}).empty());  // the large one is missing then
    REQUIRE_THAT(message({text_attribute("missing_value", "none")}),
                 Contains("attribute missing_value is the text 'none' where numbers are due; read()"));
    REQUIRE_THAT(message({}, 2), Contains("holds text"));
}

TEST_CASE("netcdf: what is damaged says what, where", "[netcdf]") {
    REQUIRE(refusal(small_netcdf()).empty());
    REQUIRE_THAT(refusal(bytes{}), Contains("x.nc: truncated at byte 0"));
    REQUIRE_THAT(refusal(bytes(8, 7)), Contains("x.nc: byte 0: not a netCDF file"));
    REQUIRE_THAT(refusal({.version = 3, .dimensions = {}, .attributes = {}, .variables = {}}),
                 Contains("x.nc: byte 3: netCDF version 3"));
    REQUIRE_THAT(refusal(bytes{0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'}), Contains("netCDF-4"));
    REQUIRE_THAT(message_of([] { netcdf_file("/nowhere.nc"); }), Contains("/nowhere.nc: no such file"));

    // The variable t begins at byte begin[1]; the header's parts are found by what they hold.
    const netcdf_content good = small_netcdf();
    std::vector<std::uint64_t> begin;
    const bytes raw = netcdf_bytes(good, &begin);
    const auto find = [&](const std::string& text) {
        return static_cast<std::size_t>(std::search(raw.begin(), raw.end(), text.begin(), text.end()) - raw.begin());
    };
    const auto with = [&](std::size_t at, std::uint32_t number) {
        bytes changed = raw, four;
        append_number(four, number, big);
        std::copy(four.begin(), four.end(), changed.begin() + static_cast<std::ptrdiff_t>(at));
        return refusal(changed);
    };
    REQUIRE_THAT(with(4, 0x80000000), Contains("byte 4: the number of records is negative"));
    REQUIRE_THAT(with(4, 3), Contains("truncated") && Contains("in each of 3 records"));
    REQUIRE_THAT(with(4, 0x7fffffff), Contains("truncated") && Contains("fetch it again"));
    REQUIRE_THAT(with(8, 11), Contains("byte 8: tag 11 before the number of dimensions, 3; 10 is due, or two zeros"));
    REQUIRE_THAT(with(8, 0), Contains("tag 0 before the number of dimensions, 3"));
    REQUIRE_THAT(with(12, 0xffffffff), Contains("byte 12: the number of dimensions is -1"));
    REQUIRE_THAT(with(12, 0x7fffffff), Contains("x.nc: byte"));
    const std::size_t time = find("time");
    REQUIRE_THAT(with(time - 4, 257), Contains("a dimension's name of 257 bytes; 1 to 256"));
    REQUIRE_THAT(with(time - 4, 0), Contains("name of 0 bytes"));
    REQUIRE_THAT(with(time - 4, 0xfffffffe), Contains("the length of a name is -2"));
    REQUIRE_THAT(with(time, 0x74ff0000), Contains("a dimension's name is not UTF-8"));
    REQUIRE_THAT(with(time, 0xc0af6161), Contains("not UTF-8"));  // overlong
    REQUIRE_THAT(with(time, 0xeda08061), Contains("not UTF-8"));  // half of a pair
    REQUIRE_THAT(with(time, 0x616161e2), Contains("not UTF-8"));  // ends early
    REQUIRE_THAT(with(time, 0x61006161), Contains("not UTF-8"));
    REQUIRE(with(time, 0xf09f8c8d).empty());
    REQUIRE_THAT(with(time + 4, 0xffffffff), Contains("a dimension's length is -1"));
    REQUIRE_THAT(with(time + 16, 0), Contains("'y' is a second unlimited dimension"));
    REQUIRE_THAT(with(time + 16, 0x7fffffff), Contains("variable 'name': truncated"));  // y: 2^31 - 1
    REQUIRE_THAT(with(time + 12, 0x78000000), Contains("a dimension's name 'x' is there twice"));
    const std::size_t t = find(std::string("\0\0\0\1t\0\0\0", 8)) + 4;
    REQUIRE_THAT(with(t + 8, 3), Contains("variable 't' has dimension number 3 of 3"));
    REQUIRE_THAT(with(t + 12, 0), Contains("the unlimited dimension 'time' is not its first"));
    REQUIRE_THAT(with(t + 4, 0x7fffffff), Contains("x.nc"));
    const std::size_t scale = find("scale_factor");
    REQUIRE_THAT(with(scale + 12, 7), Contains("unknown element type 7; 1 to 6"));
    REQUIRE_THAT(with(scale + 16, 0x7fffffff), Contains("attribute 'scale_factor' has 2147483647 values of 8 byte(s)"));
    REQUIRE_THAT(with(scale + 16, 0xffffffff), Contains("the number of an attribute's values is -1"));
    // type, size and first byte of t lie behind its last attribute.
    const std::size_t kind = find("valid_range") + 12 + 8 + 4;
    REQUIRE_THAT(with(kind, 0), Contains("unknown element type 0"));
    REQUIRE(with(kind + 4, 0x7fffffff).empty());  // the size is not relied on
    REQUIRE_THAT(with(kind + 8, 0), Contains("variable 't': begins at byte 0, what precedes it ends at byte"));
    REQUIRE_THAT(with(kind + 8, 0x80000000), Contains("a variable's first byte is -2147483648"));
    REQUIRE_THAT(with(kind + 8, 0x7ffffff0), Contains("variable"));

    // Products that overflow, and 2^31 values and more in every kind of file.
    for (const int version : {1, 2, 5}) {
        netcdf_content c{.version = version, .dimensions = {{"a", 0x7fffffff}}, .attributes = {}, .variables = {}};
        c.variables.push_back({"v", {0}, 1, {}});
        REQUIRE_THAT(refusal(c), Contains("variable 'v': truncated") && Contains("2147483647 bytes"));
        c.variables[0].dimensions = {0, 0, 0, 0, 0, 0, 0, 0, 0};
        REQUIRE_THAT(refusal(c), Contains("claims more than"));
        c.dimensions.push_back({"r", 0});
        c.variables[0].dimensions = {1, 0};
        bytes many = netcdf_bytes({.version = version,
                                   .dimensions = c.dimensions,
                                   .attributes = {},
                                   .variables = c.variables,
                                   .streaming = true});
        REQUIRE(refusal(many).empty());  // no record is there
        many[4] = version == 5 ? 0x40 : 0x7f;
        REQUIRE_THAT(refusal(many), Contains("truncated"));
        // Empty, but of too many elements to be counted.
        c.variables[0].dimensions = {1, 0, 0, 0};
        REQUIRE_THAT(refusal(c), Contains("claims more than"));
    }
    netcdf_content deep{.version = 1, .dimensions = {{"a", 1}}, .attributes = {}, .variables = {}};
    deep.variables.push_back({"v", {0, 0, 0, 0, 0, 0, 0}, 1, {1}});
    REQUIRE_THAT(message_of([&] { netcdf_file(netcdf_bytes(deep), "x.nc").read<float>("v"); }),
                 Contains("x.nc: variable 'v': 7 axes; up to 6"));
    const netcdf_file file(raw, "x.nc");
    REQUIRE_THAT(message_of([&] { file.read<float>("q"); }),
                 Contains("x.nc: no variable 'q'; there are: x, t, flag, name, one"));
    REQUIRE_THAT(message_of([&] { file.read<std::uint8_t>("t"); }), Contains("variable 't': element 10 is -1"));
    REQUIRE_THAT(message_of([&] { file.read<int>("one"); }), Contains("variable 'one': element 0 is 7.5"));
}

TEST_CASE("netcdf: no shorter file is read", "[netcdf]") {
    for (const int version : {1, 2, 5}) {
        const bytes raw = netcdf_bytes(small_netcdf(version));
        for (std::size_t n = 0; n + 1 < raw.size(); ++n) {  // the last byte is padding
            const std::string message = refusal(bytes(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(n)));
            INFO(n << " of " << raw.size());
            REQUIRE_THAT(message, Contains("x.nc") && Contains("truncated"));
        }
    }
}

// Places and bits of all elements in one number: the sum of (2 · i + 1) · bits of element i.
template <class T>
std::uint64_t weighed(const tensor<T>& t) {
    std::uint64_t sum = 0;
    for (index_t i = 0; i < t.size(); ++i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, t.data() + i, sizeof(T));
        sum += (2 * static_cast<std::uint64_t>(i) + 1) * bits;
    }
    return sum;
}

TEST_CASE("netcdf: the climate set is what Python's packages read", "[netcdf]") {
    const auto folder = real_data() / "climate-fields";
    if (real_data().empty() || !std::filesystem::exists(folder)) {
        WARN("skipped: no data");
        return;
    }
    struct fact {
        const char *file, *variable;
        shape extents;
        std::uint64_t stored;
    };
    // By the netCDF4 package, 1.7; the classic files by scipy.io.netcdf_file too.
    std::vector<fact> facts{
        {"NCEP_06_climo.nc", "LHFLX", {1, 64, 128}, 0x114fb9cc71e1a8b},
        {"NCEP_06_climo.nc", "OMEGA", {1, 12, 64, 128}, 0xa10a589f61f36cf},
        {"NCEP_06_climo.nc", "RELHUM", {1, 8, 64, 128}, 0x42210b9cf425fee8},
        {"NCEP_06_climo.nc", "T", {1, 17, 64, 128}, 0x303ed31c27860c86},
        {"NCEP_06_climo.nc", "RESTOA", {1, 64, 128}, 0x18cf3669f09d463},
        {"NCEP_06_climo.nc", "date", {1}, 0x3050d},
        {"NCEP_06_climo.nc", "lev1", {12}, 0x25f64d4000},
        {"TREFHT.B06.57.atm.1890-1999ANN.nc", "TREFHT", {110, 64, 128}, 0xe042a0bba7fe9a85},
        {"TREFHT.B06.57.atm.1890-1999ANN.nc", "time", {110}, 0x21e49e45555550bc},
        {"TREFHT.B06.59.atm.1890-1999ANN.nc", "TREFHT", {110, 64, 128}, 0xe0434174640d1d3b},
        {"TREFHT.B06.66.atm.1890-1999ANN.nc", "TREFHT", {110, 64, 128}, 0xe016971db362b65c},
        {"TREFHT.B06.67.atm.1890-1999ANN.nc", "TREFHT", {110, 64, 128}, 0xe013dae7162e9435},
        {"eraint_uvz.nc", "latitude", {241}, 0x8f1b66cf0000},
        {"eraint_uvz.nc", "month", {2}, 0x16},
        {"eraint_uvz.nc", "z", {2, 3, 241, 480}, 0x29ae75f8926ebf},
        {"eraint_uvz.nc", "u", {2, 3, 241, 480}, 0x1bf5030fca00fe},
        {"eraint_uvz.nc", "v", {2, 3, 241, 480}, 0x52778148ff2cef},
    };
#if CAIRN_HAS_HDF5
    facts.push_back({"A1B_north_america.nc", "air_temperature", {240, 37, 49}, 0xa2362cfe7489a5e2});
    facts.push_back({"A1B_north_america.nc", "time", {240}, 0xb27ef39000000000});
    facts.push_back({"E1_north_america.nc", "air_temperature", {240, 37, 49}, 0xa224e07b2fe79124});
    facts.push_back({"basin_mask.nc", "basin", {33, 180, 360}, 0x15d169565062b});
#endif
    for (const fact& f : facts) {
        INFO(f.file << ' ' << f.variable);
        const netcdf_file file(folder / f.file);
        REQUIRE(file.shape(f.variable) == f.extents);
        visit_netcdf(file.variable(f.variable).type,
                     [&](auto example) { REQUIRE(weighed(file.read<decltype(example)>(f.variable)) == f.stored); });
    }
    // Packed by scale_factor and add_offset.
    const auto z = netcdf_file(folder / "eraint_uvz.nc").read_unpacked<double>("z");
    REQUIRE(weighed(z.values) == 0xbae2cd8d4db569dd);
    REQUIRE(weighed(z.missing) == 0);
}

}  // namespace netcdf_tests
}  // namespace cairn::test
