"""The operators under their names in equations, `op.pad` for access-pad: `from glenside.rewrites import operators as
op`.
"""

from glenside.ir.operators import gathering, leaves, padding, products, slices, views, windowing
from glenside.ir.operators.casting import cast as cast
from glenside.ir.operators.casting import truncate as truncate
from glenside.ir.operators.compute import compute as compute
from glenside.ir.operators.folds import elementwise_add as elementwise_add
from glenside.ir.operators.folds import elementwise_div as elementwise_div
from glenside.ir.operators.folds import elementwise_mul as elementwise_mul
from glenside.ir.operators.folds import subtract as subtract
from glenside.ir.operators.leaves import full as full
from glenside.ir.operators.linear_maps import linear_map as linear_map
from glenside.ir.operators.normalizations import softmax as softmax
from glenside.ir.operators.opaque import opaque_items as opaque_items
from glenside.ir.operators.opaque import opaque_pointwise as opaque_pointwise
from glenside.ir.operators.pointwise import negative as negative
from glenside.ir.operators.product_unit import product_unit as product_unit
from glenside.ir.operators.reductions import dot_product as dot_product
from glenside.ir.operators.reductions import reduce_sum as reduce_sum
from glenside.ir.operators.scattering import overlap_add_product as overlap_add_product
from glenside.ir.operators.tiled_products import tiled_product as tiled_product
from glenside.ir.operators.tiles import systolic_array as systolic_array
from glenside.ir.operators.tiles import systolic_array_output_stationary as systolic_array_output_stationary
from glenside.ir.operators.views import access as access

tensor = leaves.access_tensor
product = products.access_product
gather = gathering.access_gather
scatter_nd = gathering.access_scatter_nd
# Parts of tensors, and padding.
concatenate = slices.access_concatenate
slice = slices.access_slice
dilate = padding.access_dilate
pad = padding.access_pad
overlap_add = windowing.access_overlap_add
windows = windowing.access_windows
# The same elements in other places.
broadcast = views.access_broadcast
flatten = views.access_flatten
flip = views.access_flip
insert_axis = views.access_insert_axis
rearrange = views.access_rearrange
reshape = views.access_reshape
shift_right = views.access_shift_right
squeeze = views.access_squeeze
transpose = views.access_transpose
