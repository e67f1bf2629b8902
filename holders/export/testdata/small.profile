[1 5 0 0 0 0] map[category:unknown device:0 pool:default stream:0x0]
    (no stack) :0
[1 300 1 300 1 300] map[category:temporaries device:0 pool:default stream:0x0 tag:layer 1]
    forward model.py:10
    _call_impl /v/site-packages/torch/nn/modules/module.py:8
    <module> a "b"/train.py:3
[1 1000 1 1000 0 0] map[category:unknown device:0 pool:(0, 3) stream:0xfffffffffffffff0]
    <module> a "b"/train.py:3
[1 1048576 1 1048576 0 0] map[category:unknown device:2 pool:(1, 0) stream:0x7]
    (before the recording) :0
