"""Direct NHWC convolution on FMA units: depthwise, grouped, and whatever no tensor core family serves."""

from templates.direct_conv.family import DirectConv

FAMILY = DirectConv()
