#pragma once
// JPEG by libjpeg-turbo, to 8-bit RGB. The only file that includes it.
// A crop that will be shrunk anyway is decoded small: the inverse DCT makes an 8×8 block directly 4×4, 2×2 or 1×1 (the
// scales with fast code; others cost more than full size). Rows and columns outside the crop are not transformed at
// all. At full size the pixels of a crop are exactly those of the whole image.
// Greyscale becomes RGB; CMYK and YCCK become RGB by (ink × black / 255), the convention of Adobe's inverted files.
// Truncated and corrupt data, which the library repairs with grey and a warning, are errors here.

#include <cairn/data/bytes.hpp>
#include <cairn/data/image.hpp>

#include <algorithm>
#include <cmath>
#include <csetjmp>

#if !defined(CAIRN_HAS_JPEG) && __has_include(<jpeglib.h>)
#define CAIRN_HAS_JPEG 1
#endif
#if CAIRN_HAS_JPEG
#include <jpeglib.h>
// After jpeglib.h:
#include <jerror.h>
#endif

namespace cairn {

/// Whether the bytes start like a JPEG file.
inline bool is_jpeg(byte_span bytes) {
    return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

#if CAIRN_HAS_JPEG

class jpeg_decoder {
public:
    /// Reads the header. The bytes must outlive the decoder; `name` is for errors. Throws on what is no JPEG file.
    jpeg_decoder(byte_span bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {
        require(!bytes.empty(), name_, ": empty file, a JPEG image is expected");
        require(is_jpeg(bytes), name_, ": byte 0: not a JPEG image (ff d8 ff expected)");
        c_.err = jpeg_std_error(&errors_);
        c_.client_data = this;
        errors_.error_exit = [](j_common_ptr c) { std::longjmp(self(c).jump_, 1); };
        errors_.emit_message = [](j_common_ptr c, int level) {
            if (level < 0 && is_damage(c->err->msg_code)) std::longjmp(self(c).jump_, 1);
        };
        errors_.output_message = [](j_common_ptr) {};
        try {
            guarded([&] {
                jpeg_create_decompress(&c_);
                jpeg_mem_src(&c_, bytes_.data(), static_cast<unsigned long>(bytes_.size()));
                jpeg_read_header(&c_, TRUE);
            });
            const index_t w = width(), h = height();
            require(w * h <= max_image_pixels, name_, ": ", w, " × ", h, " pixels; up to ", max_image_pixels,
                    " are decoded");
            // A block of 64 pixels takes at least one bit; with room to spare, more pixels than that are a lie.
            require(w * h <= static_cast<index_t>(bytes.size()) * 4096, name_, ": ", w, " × ", h,
                    " pixels cannot come from ", bytes.size(), " bytes: corrupt header, or truncated");
        } catch (...) {
            jpeg_destroy_decompress(&c_);
            throw;
        }
    }
    ~jpeg_decoder() { jpeg_destroy_decompress(&c_); }
    jpeg_decoder(const jpeg_decoder&) = delete;
    jpeg_decoder& operator=(const jpeg_decoder&) = delete;

    index_t width() const { return c_.image_width; }
    index_t height() const { return c_.image_height; }

    /// Decodes at least `box` (in pixels of the full image), shrunk by 1, 2, 4 or 8, as far as box stays at least
    /// target_height × target_width. `out` gets RGB pixels; returns where box lies in them. Throws on corrupt data.
    pixel_box decode(pixel_box box, index_t target_height, index_t target_width, image& out) {
        // Without an end marker the file was cut off, maybe below the crop: then all of it is decoded, which fails for
        // certain.
        const bool whole = !ends();
        int shrink = 1;
        // libjpeg-turbo 2.1 misplaces small colours where a sample of theirs is for more than 4 pixels (4:1:0).
        const bool scalable = c_.max_h_samp_factor * c_.max_v_samp_factor <= 4;
        while (scalable && shrink < 8 && box.height >= 2.0 * shrink * static_cast<double>(target_height) &&
               box.width >= 2.0 * shrink * static_cast<double>(target_width))
            shrink *= 2;
        start(shrink);
        // The last row and column may be of fewer pixels: the scale is not that of the extents, which are rounded up.
        const double s = 1.0 / shrink;
        pixel_box scaled{box.top * s, box.left * s, box.height * s, box.width * s};
        if (whole) {
            read_rows(out, 0, c_.output_height);
            return scaled;
        }
        // Two pixels more on each side: the colours of a pixel are interpolated from its neighbours.
        const index_t top = clamp(std::floor(scaled.top + 1e-6) - 2, c_.output_height);
        const index_t bottom = clamp(std::ceil(scaled.top + scaled.height - 1e-6) + 2, c_.output_height);
        const index_t left = clamp(std::floor(scaled.left + 1e-6) - 2, c_.output_width);
        const index_t right = clamp(std::ceil(scaled.left + scaled.width - 1e-6) + 2, c_.output_width);
        require(bottom > top && right > left, name_, ": crop outside the image");
        JDIMENSION first = static_cast<JDIMENSION>(left), columns = static_cast<JDIMENSION>(right - left);
        guarded([&] {
            if (columns < c_.output_width) jpeg_crop_scanline(&c_, &first, &columns);
        });
        read_rows(out, top, static_cast<JDIMENSION>(bottom));
        scaled.top -= static_cast<double>(top);
        scaled.left -= static_cast<double>(first);
        return scaled;
    }

    /// Decodes the whole image at full size.
    void decode(image& out) {
        start(1);
        read_rows(out, 0, c_.output_height);
    }

private:
    static jpeg_decoder& self(j_common_ptr c) { return *static_cast<jpeg_decoder*>(c->client_data); }

    // Warnings of the library that mean lost pixels. Others (odd markers, unknown colour transforms) are harmless.
    static bool is_damage(int code) {
        return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
               code == JWRN_MUST_RESYNC || code == JWRN_ARITH_BAD_CODE;
    }

    // The library reports errors by a callback that must not return; it jumps back to here. `action` may hold nothing
    // with a destructor.
    template <class Action>
    void guarded(Action&& action) {
        if (setjmp(jump_) == 0) {
            action();
            return;
        }
        throw_library_error();
    }

    [[noreturn]] void throw_library_error() {
        std::array<char, JMSG_LENGTH_MAX> message{};
        if (!own_message_) c_.err->format_message(reinterpret_cast<j_common_ptr>(&c_), message.data());
        const std::size_t at = bytes_.size() - (c_.src ? c_.src->bytes_in_buffer : 0);
        jpeg_abort_decompress(&c_);
        fail(name_, ": near byte ", std::min(at, bytes_.size()), " of ", bytes_.size(),
             ": corrupt JPEG image: ", own_message_ ? own_message_ : message.data());
    }

    // Whether an end-of-image marker is where it should be; some writers pad after it.
    bool ends() const {
        const std::size_t n = bytes_.size(), lowest = n > 66 ? n - 64 : 2;
        for (std::size_t i = n; i >= lowest; --i)
            if (bytes_[i - 2] == 0xff && bytes_[i - 1] == 0xd9) return true;
        return false;
    }

    static index_t clamp(double position, JDIMENSION extent) {
        return static_cast<index_t>(std::clamp(position, 0.0, static_cast<double>(extent)));
    }

    void start(int shrink) {
        const bool inks = c_.jpeg_color_space == JCS_CMYK || c_.jpeg_color_space == JCS_YCCK;
        c_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
        c_.scale_num = static_cast<unsigned>(8 / shrink);
        c_.scale_denom = 8;
        guarded([&] {
            if (jpeg_has_multiple_scans(&c_)) {
                // A few bytes a scan can ask for a pass over the whole image, thousands of times.
                progress_.progress_monitor = [](j_common_ptr c) {
                    if (reinterpret_cast<j_decompress_ptr>(c)->input_scan_number <= 200) return;
                    self(c).own_message_ = "more than 200 scans";
                    std::longjmp(self(c).jump_, 1);
                };
                c_.progress = &progress_;
            }
            jpeg_start_decompress(&c_);
        });
    }

    // Rows [top, bottom) of the output, converted to RGB.
    void read_rows(image& out, index_t top, JDIMENSION bottom) {
        const auto components = static_cast<index_t>(c_.output_components);
        out.resize(static_cast<index_t>(bottom) - top, c_.output_width, components);
        std::uint8_t* const pixels = out.pixels.data();
        const std::size_t stride = static_cast<std::size_t>(out.width * components);
        guarded([&] {
            if (top > 0) jpeg_skip_scanlines(&c_, static_cast<JDIMENSION>(top));
            while (c_.output_scanline < bottom) {
                JSAMPROW rows[8];
                const JDIMENSION n = std::min<JDIMENSION>(8, bottom - c_.output_scanline);
                for (JDIMENSION r = 0; r < n; ++r)
                    rows[r] = pixels + (c_.output_scanline + r - static_cast<JDIMENSION>(top)) * stride;
                jpeg_read_scanlines(&c_, rows, n);
            }
            jpeg_abort_decompress(&c_);
        });
        if (components == 4) inks_to_rgb(out);
    }

    static void inks_to_rgb(image& out) {
        const std::size_t count = static_cast<std::size_t>(out.height * out.width);
        std::uint8_t* p = out.pixels.data();
        for (std::size_t i = 0; i < count; ++i) {
            const int black = p[4 * i + 3];
            for (std::size_t c = 0; c < 3; ++c)
                p[3 * i + c] = static_cast<std::uint8_t>((p[4 * i + c] * black + 127) / 255);
        }
        out.resize(out.height, out.width, 3);
    }

    byte_span bytes_;
    std::string name_;
    jpeg_decompress_struct c_{};
    jpeg_error_mgr errors_{};
    jpeg_progress_mgr progress_{};
    const char* own_message_ = nullptr;
    std::jmp_buf jump_{};
};

#else

class jpeg_decoder {
public:
    jpeg_decoder(byte_span, const std::string& name) {
        fail(name,
             ": Cairn was built without libjpeg; install libjpeg-dev and build again, or convert the images to PNG");
    }
    index_t width() const { return 0; }
    index_t height() const { return 0; }
    pixel_box decode(pixel_box box, index_t, index_t, image&) { return box; }
    void decode(image&) {}
};

#endif

}  // namespace cairn
