#pragma once
// Reductions on a grid device, those of device/cpu/reduce.hpp: of whole arrays, of parts of an array, of columns and of
// rows.

#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/grid/column_sums.hpp>
#include <cairn/device/grid/rows.hpp>
#include <cairn/device/grid/sums_by_part.hpp>
