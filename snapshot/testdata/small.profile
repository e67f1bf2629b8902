[1 300 0 0] map[device:0 pool:default stream:0x0 tag:layer 1]
    forward model.py:10
    <module> a "b"/train.py:3
[1 1000 1 1000] map[device:0 pool:(0, 3) stream:0xfffffffffffffff0]
    <module> a "b"/train.py:3
[1 1048576 1 1048576] map[device:2 pool:(1, 0) stream:0x7]
    (no stack) :0
