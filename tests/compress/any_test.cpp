#include "compress/compressor_laws.hpp"

#include <cairn/compress/any.hpp>

namespace laws {

TEST_CASE("any_compressor is the compressor in it", "[any_compressor]") {
    static_assert(Compressor<any_compressor>);
    const floats x = numbers("heavy tail", 1000);
    const encode_step at{.seed = 4, .step = 2};
    const auto same = [&](const char* spec, auto c) {
        CAPTURE(spec);
        any_compressor any = make_compressor(spec);
        REQUIRE(any.name() == c.name());
        REQUIRE(any.max_bytes(1000) == c.max_bytes(1000));
        REQUIRE(any.contract(1000).contraction == c.contract(1000).contraction);
        for (int step = 0; step < 3; ++step) {  // with the state that it keeps
            const auto bytes = encoded(c, x, at);
            REQUIRE(encoded(any, x, at) == bytes);
            REQUIRE(decoded(any, bytes, 1000, at) == decoded(c, bytes, 1000, at));
        }
        REQUIRE(tensors_of(any).size() == tensors_of(c).size());
    };
    same("bf16", bf16());
    same("bf16_stochastic", bf16_stochastic());
    same("fp16+ef", error_feedback(fp16()));
    same("fp16_stochastic", fp16_stochastic());
    same("topk", topk());
    same("topk:0.05+ef", error_feedback(topk({.ratio = 0.05})));
    same("sampled_topk:0.5", sampled_topk({.ratio = 0.5}));
    same("randomk:0.25+ef", error_feedback(randomk({.ratio = 0.25})));
    same("randomk_unbiased", randomk({.ratio = 0.01, .unbiased = true}));
    same("dgc:0.02", dgc({.ratio = 0.02}));
    same("qsgd:15", qsgd({15}));
    same("natural", natural());
    same("sign+ef", error_feedback(sign()));
    same("onebit", onebit());
    same("error_bounded:1e-2", error_bounded({.bound = 1e-2}));
    any_compressor c = make_compressor("sign+ef");
    prepare_state(c, 10);
    REQUIRE(tensors_of(c)[0].t.size() == 10);
}

TEST_CASE("what was kept back can be sent dense", "[any_compressor]") {
    for (const char* spec : {"topk:0.1+ef", "sign+ef", "sign"}) {
        any_compressor c = make_compressor(spec);
        floats g = numbers("normal", 500);
        release_residual(c, g);  // nothing yet
        REQUIRE(g == numbers("normal", 500));
        const floats sent = decoded(c, encoded(c, g), 500);
        floats next(500, 1.0f);
        release_residual(c, next);
        const bool kept = !tensors_of(c).empty();
        for (std::size_t i = 0; i < next.size(); ++i)
            REQUIRE(next[i] == Approx(1 + (kept ? g[i] - sent[i] : 0)).margin(1e-6));
        floats again(500, 1.0f);
        release_residual(c, again);
        REQUIRE(again == floats(500, 1.0f));
        floats wrong(499);
        if (kept) REQUIRE_THROWS_AS(release_residual(c, wrong), error);
    }
}

TEST_CASE("a compressor's name that makes no sense is explained", "[any_compressor]") {
    REQUIRE_THROWS_WITH(make_compressor("zip"), Catch::Contains("zip: unknown; known are bf16"));
    REQUIRE_THROWS_WITH(make_compressor("topk:x"), Catch::Contains("x is not a number"));
    REQUIRE_THROWS_WITH(make_compressor("topk:"), Catch::Contains("is not a number"));
    REQUIRE_THROWS_WITH(make_compressor("topk:0"), Catch::Contains("ratio 0 is not in (0, 1]"));
    REQUIRE_THROWS_WITH(make_compressor("sign:3"), Catch::Contains("sign takes no number"));
    REQUIRE_THROWS_WITH(make_compressor("qsgd:2.5"), Catch::Contains("2.5 levels"));
    REQUIRE_THROWS_WITH(make_compressor("dgc+ef"), Catch::Contains("use it without +ef"));
}

}  // namespace laws
