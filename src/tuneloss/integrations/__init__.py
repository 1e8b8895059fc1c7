"""Adapters for other libraries, one file per library. Importing this room imports none of them.

lightning.py         TuneLossCallback: loss weights while a Lightning Trainer trains
optuna.py            TuneLossSampler: loss weights in an Optuna study
optuna_records.py    how the weights of a trial were proposed, in its attributes
optuna_study.py      what the sampler knows of one study
optuna_turns.py      workers that ask for weights at the same time
optuna_advice.py     what keeps the sampler from learning, in words
ray.py               TuneLossSearch: loss weights in a search of Ray Tune
ray_journal.py       what a Ray search was told, in a file
transformers.py      TuneLossTrainer: loss weights inside one run of the Hugging Face trainer
transformers_run.py  when its tuner steps, where its state is kept, what is logged
"""
