"""Adapters for other libraries, one file per library. Importing this room imports none of them.

lightning.py         TuneLossCallback: loss weights while a Lightning Trainer trains
optuna.py            TuneLossSampler: loss weights in an Optuna study
transformers.py      TuneLossTrainer: loss weights inside one run of the Hugging Face trainer
transformers_run.py  when its tuner steps, where its state is kept, what is logged
"""
